//! `--keep`: everything stays, and the person learns how to use it and how to stop it.

use super::stage::Stage;
use super::story::Scene;

pub(crate) fn explain(mut stage: Stage, scene: &Scene) -> anyhow::Result<()> {
    let pids: Vec<_> =
        [stage.node.take(), stage.core.take()].iter().flatten().map(|program| program.pid().to_string()).collect();
    let installation = stage.engine.installation.clone().unwrap_or_default();
    let folder = stage.folder.path().display().to_string();
    let script = format!(
        "#!/bin/sh\n# Ends this demo and removes everything of it.\nkill {pids}\n\
         docker ps --all --quiet --filter label=io.oac.installation={installation} | xargs --no-run-if-empty docker rm --force\n\
         docker volume ls --quiet --filter label=io.oac.installation={installation} | xargs --no-run-if-empty docker volume rm\n\
         docker network rm {network}\nrm -rf {folder}\n",
        pids = pids.join(" "),
        network = stage.engine.network,
    );
    let stop = stage.write("stop", &script)?;
    let (api, session) = (&scene.api, &scene.sandboxes[0].session);
    let call = format!(
        "curl -s -H 'Authorization: Bearer {}' -H 'OpenAI-Beta: agents=v1' {}/v1/agents/sessions",
        api.project_key, api.origin
    );
    println!("\nCore is at {}; its key is in {folder}/core-key", api.origin);
    println!("The project's key is {}", api.project_key);
    println!("\nList the sandboxes:\n  {call}");
    println!("Run a command in one, and read what it printed:");
    println!("  {call}/{session}/events --json '{{\"type\":\"message\",\"command\":{{\"args\":[\"ps\"]}}}}'");
    println!("  {call}/{session}/turns");
    println!("Stop it and remove everything:\n  sh {}", stop.display());
    Ok(())
}
