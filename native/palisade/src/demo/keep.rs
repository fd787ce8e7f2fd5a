//! `--keep`: everything stays, and the person learns how to use it and how to stop it.

use super::stage::Stage;
use super::story::Scene;
use super::timeline::say;

pub(crate) fn explain(stage: &Stage, scene: &Scene) -> anyhow::Result<()> {
    let pids: Vec<_> = stage.nodes.values().chain(&stage.core).map(|program| program.pid().to_string()).collect();
    let installation = stage.engine.installation.clone().unwrap_or_default();
    let folder = stage.folder.path().display().to_string();
    // An id may belong to another process by then: only one that serves our folder is ended. Nothing is removed before
    // both are gone, so that nothing is made meanwhile.
    let script = format!(
        "#!/bin/sh\n# Ends this demo and removes everything of it.\n\
         ours() {{ grep -qs {folder} /proc/$1/cmdline; }}\n\
         for pid in {pids}; do if ours $pid; then kill $pid; fi; done\n\
         for pid in {pids}; do while ours $pid; do sleep 0.1; done; done\n\
         docker ps --all --quiet --filter label=io.oac.installation={installation} | xargs --no-run-if-empty docker rm --force >/dev/null\n\
         docker volume ls --quiet --filter label=io.oac.installation={installation} | xargs --no-run-if-empty docker volume rm >/dev/null\n\
         docker network rm {network} >/dev/null\nrm -rf {folder}\necho 'removed the demo: its processes, containers, volumes, network and files'\n",
        pids = pids.join(" "),
        network = stage.engine.network,
    );
    let stop = stage.write("stop", &script)?;
    let (api, session) = (&scene.api, &scene.sandboxes[0].session);
    let call = format!(
        "curl -s -H 'Authorization: Bearer {}' -H 'OpenAI-Beta: agents=v1' {}/v1/agents/sessions",
        api.project_key, api.origin
    );
    say(format_args!("\nCore is at {}; its key is in {folder}/core-key", api.origin));
    say(format_args!("The project's key is {}", api.project_key));
    say(format_args!("\nList the sandboxes:\n  {call}"));
    say("Run a command in one, and read what it printed:");
    say(format_args!("  {call}/{session}/events --json '{{\"type\":\"message\",\"command\":{{\"args\":[\"ps\"]}}}}'"));
    say(format_args!("  {call}/{session}/turns"));
    say(format_args!("Stop it and remove everything:\n  sh {}", stop.display()));
    Ok(())
}
