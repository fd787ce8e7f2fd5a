use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::admin::error::{Code, Detail, Fault};
use crate::admin::time::Timestamp;
use crate::deployment::admission::tests::node as stored_node;
use crate::deployment::contract::Provider;
use crate::deployment::tests::{deployment, id, resetting};
use crate::deployment::view::{self, Counted};

const NOW: Timestamp = Timestamp(1_000_000);
const KEY: &str = "e2b_0123456789abcdef";

fn shown() -> Deployment {
    view::deployment(&deployment(Some(Provider::Docker)), &Counted::default(), &[], NOW)
}

fn detail() -> Value {
    let shown = view::node(&stored_node(2), &deployment(Some(Provider::Docker)), NOW).expect("a node");
    let mut detail = serde_json::to_value(shown).expect("a node");
    detail["host"] = json!({"effective_cpu_cores": 2.5, "cpu_utilization": null, "total_memory_bytes": 1,
        "available_memory_bytes": null, "available_disk_bytes": null, "observed_at": "2026-01-01T00:00:00.000Z"});
    detail["history"] = json!({"resolution_seconds": 60, "points": [{"start": "2026-01-01T00:00:00.000Z",
        "cpu_utilization_max": 0.5, "memory_used_bytes_max": null, "available_disk_bytes_min": null}]});
    detail
}

fn answered<T>(call: &Call<T>, answer: &Value) -> Result<T, (u16, Option<String>)> {
    let answer = call.handle_answer(200, answer.to_string().as_bytes());
    answer.map_err(|failed| (failed.status, failed.code))
}

fn invalid<T>() -> Result<T, (u16, Option<String>)> {
    Err((502, Some("invalid_admin_response".to_owned())))
}

fn refuse<T>(call: &Call<T>, status: u16, error: &Value) -> Failed {
    match call.handle_answer(status, json!({ "error": error }).to_string().as_bytes()) {
        Err(failed) => failed,
        Ok(_) => panic!("a refusal"),
    }
}

/// D 93. D 96. Each operation is one request on its route; only those with a body carry one.
#[test]
fn each_operation_is_one_request() {
    let node = id(2);
    let route =
        |method: Method, path: &str, body: Option<&str>| format!("{} {path} {}", method.name(), body.unwrap_or("-"));
    let text = |call: &dyn Fn() -> (Method, String, Option<String>)| {
        let (method, path, body) = call();
        route(method, &path, body.as_deref())
    };
    macro_rules! sent {
        ($call:expr) => {
            text(&|| {
                let call = $call;
                (call.method, call.path, call.body)
            })
        };
    }
    assert_eq!(sent!(read_deployment()), "GET /core/v1/sandbox/deployment -");
    assert_eq!(sent!(initialise_deployment("{}".to_owned())), "POST /core/v1/sandbox/deployment {}");
    assert_eq!(sent!(update_deployment("{}".to_owned())), "PUT /core/v1/sandbox/deployment {}");
    let reset = "POST /core/v1/sandbox/deployment/reset";
    let auto = r#"{"expected_generation":3,"clear":"auto","deadline_seconds":300}"#;
    assert_eq!(sent!(start_reset(3, Clear::Auto, Some(300))), format!("{reset} {auto}"));
    let force = r#"{"expected_generation":3,"clear":"force"}"#;
    assert_eq!(sent!(start_reset(3, Clear::Force, None)), format!("{reset} {force}"));
    assert_eq!(sent!(cancel_reset(3)), "DELETE /core/v1/sandbox/deployment/reset?expected_generation=3 -");
    assert_eq!(sent!(list_nodes()), "GET /core/v1/sandbox/nodes -");
    assert_eq!(sent!(read_node(node, Range::SixHours)), format!("GET /core/v1/sandbox/nodes/{node}?range=6h -"));
    assert_eq!(sent!(list_allocations(node)), format!("GET /core/v1/sandbox/nodes/{node}/allocations -"));
    let update = r#"{"name":"n","max_active":2,"max_retained":8}"#;
    assert_eq!(sent!(update_node(node, "n", 2, 8)), format!("PATCH /core/v1/sandbox/nodes/{node} {update}"));
    assert_eq!(sent!(remove_node(node)), format!("DELETE /core/v1/sandbox/nodes/{node} -"));
    assert_eq!(sent!(create_enrollment(Approval::default())), "POST /core/v1/sandbox/enrollment-tokens {}");
    let archived = format!("/core/v1/projects/{}/sessions/{}/archive", id(4), id(5));
    assert_eq!(sent!(archive(id(4), id(5), None)), format!("GET {archived} -"));
    assert_eq!(sent!(archive(id(4), id(5), Some(3))), format!("POST {archived} {{\"expected_generation\":3}}"));
}

/// D 90. What Core serialises is read back; one member more or less, or an answer about something else, is refused whole.
#[test]
fn an_answer_that_core_may_not_send_is_refused() {
    let call = read_deployment();
    let answer = serde_json::to_value(shown()).expect("a view");
    assert_eq!(answered(&call, &answer), Ok(shown()));
    for change in
        [json!({"maintenance": null}), json!({"generation": -1}), json!({"generation": 9_007_199_254_740_992_u64})]
    {
        let mut broken = answer.clone();
        broken.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        assert_eq!(answered(&call, &broken), invalid(), "{change}");
    }
    assert_eq!(call.handle_answer(200, b"not json").map_err(|failed| failed.status), Err(502));
    let updated = json!({"id": id(2), "updated": true});
    assert!(answered(&update_node(id(2), "n", 1, 1), &updated).is_ok());
    assert_eq!(answered(&update_node(id(3), "n", 1, 1), &updated), invalid());
    let archived = json!({"session_id": id(5), "environment_id": id(6), "state": "active"});
    assert!(answered(&archive(id(4), id(5), None), &archived).is_ok());
    assert_eq!(answered(&archive(id(4), id(9), None), &archived), invalid());
}

/// D 95. A node's detail is exactly a Node with host and history; `enrollment_id` is required, text or null.
#[test]
fn a_node_detail_is_read_exactly() {
    let node = Id::parse(detail()["id"].as_str().expect("an id")).expect("an id");
    let call = read_node(node, Range::Hour);
    let read = answered(&call, &detail()).expect("a detail");
    assert_eq!((read.host.effective_cpu_cores, read.history.points.len()), (Some(2.5), 1));
    assert_eq!(serde_json::to_value(&read).expect("a detail"), detail());
    assert_eq!(answered(&read_node(id(9), Range::Hour), &detail()), invalid());
    for member in ["host", "history", "enrollment_id", "rollout", "last_seen_at"] {
        let mut less = detail();
        less.as_object_mut().expect("an object").remove(member);
        assert_eq!(answered(&call, &less), invalid(), "{member}");
    }
    for (pointer, value) in [
        ("/enrollment_id", json!(1)),
        ("/host/more", json!(1)),
        ("/history/points/0/more", json!(1)),
        ("/diagnostic", json!("")),
        ("/more", json!(1)),
    ] {
        let mut more = detail();
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        more.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").insert(name.to_owned(), value);
        assert_eq!(answered(&call, &more), invalid(), "{pointer}");
    }
    let mut unenrolled = detail();
    unenrolled["enrollment_id"] = Value::Null;
    assert!(answered(&call, &unenrolled).is_ok());
    let twice = detail().to_string().replacen('{', r#"{"online":true,"#, 1);
    assert!(call.handle_answer(200, twice.as_bytes()).is_err());
}

/// D 97. A reset is shown exactly as Core counts it.
#[test]
fn a_reset_that_does_not_add_up_is_refused() {
    let view = view::deployment(&resetting(Provider::Docker), &Counted::default(), &[], NOW);
    let mut answer = serde_json::to_value(&view).expect("a view");
    let call = start_reset(3, Clear::Auto, None);
    assert_eq!(answered(&call, &answer), Ok(view));
    answer["reset"]["remaining"]["idle"] = json!(1);
    assert_eq!(answered(&call, &answer), invalid());
}

/// D 91. D 100. A deployment write passes on nothing but what the closed table names, in the client's own words: a key
/// that Core would reflect anywhere never leaves.
#[test]
fn a_reflected_key_never_leaves_the_client() {
    let calls = [initialise_deployment("{}".to_owned()), update_deployment("{}".to_owned())];
    for call in calls {
        for code in Code::ALL.iter().map(|code| code.code()).chain([KEY, "constructor", "__proto__", ""]) {
            for status in [400, 401, 409, 413, 500, 503] {
                let error = json!({"message": KEY, "type": KEY, "code": code, "param": KEY,
                    "details": {KEY: KEY, "current_generation": KEY, "min": KEY}});
                let failed = refuse(&call, status, &error);
                let told = format!("{failed:?} {failed}");
                assert!(!told.contains(KEY), "{code} {status}: {told}");
                assert_eq!((failed.status, &failed.param), (status, &None));
            }
        }
        let unconfirmed = Some("sandbox_configuration_unconfirmed".to_owned());
        assert_eq!(refuse(&call, 400, &json!({"message": "", "code": KEY})).code, unconfirmed);
        let wrong_status = json!({"message": "", "code": "sandbox_generation_stale"});
        assert_eq!(refuse(&call, 503, &wrong_status).code, unconfirmed);
        assert_eq!(call.handle_failure().code, unconfirmed);
        assert_eq!(call.handle_failure().status, 0);
    }
}

/// D 100. What the closed table keeps: params under their own code and status, details by name and type.
#[test]
fn a_deployment_write_keeps_what_the_table_names() {
    let call = update_deployment(String::new());
    let error = |code: &str, param: &str, details: Value| json!({"message": "m", "code": code, "param": param, "details": details});
    for (status, code, param, kept) in [
        (400, "sandbox_credential_invalid", "credential", true),
        (400, "sandbox_configuration_invalid", "configuration", true),
        (409, "sandbox_credential_ownership", "credential", true),
        (409, "sandbox_configuration_error", "configuration", false),
        (400, "sandbox_credential_invalid", "configuration", false),
        (400, "invalid_sandbox_configuration", "resources.cpus", true),
        (400, "invalid_sandbox_configuration", "runtime", true),
        (400, "invalid_sandbox_configuration", "resources.key", false),
        (409, "sandbox_reset_required", "credential", false),
    ] {
        let failed = refuse(&call, status, &error(code, param, json!({"min": 1})));
        assert_eq!((failed.code.as_deref(), failed.param.as_deref()), (Some(code), kept.then_some(param)), "{code}");
        let bounded = code == "invalid_sandbox_configuration" && kept;
        assert_eq!(!failed.details.is_empty(), bounded, "{code}");
    }
    let stale = |details| refuse(&call, 409, &error("sandbox_generation_stale", "", details)).details;
    assert_eq!(
        stale(json!({"current_generation": 4, "more": 1})),
        BTreeMap::from([("current_generation".to_owned(), Detail::Integer(4))])
    );
    assert_eq!(stale(json!({"current_generation": -4})), BTreeMap::new());
    assert_eq!(stale(json!({"current_generation": "4"})), BTreeMap::new());
}

/// D 100. Elsewhere an envelope passes as it is, malformed details are dropped alone, and what is no envelope is told by
/// its status.
#[test]
fn other_refusals_pass_as_core_said_them() {
    let call = list_nodes();
    let fault = Fault::of(Code::InvalidNodeCapacity, "max_active").detail("min", 1);
    let envelope = serde_json::to_vec(&fault.envelope()).expect("an envelope");
    let failed = call.handle_answer(400, &envelope).expect_err("a refusal");
    assert_eq!((failed.code.as_deref(), failed.param.as_deref()), (Some("invalid_node_capacity"), Some("max_active")));
    assert_eq!(failed.details, BTreeMap::from([("min".to_owned(), Detail::Integer(1))]));
    for details in [json!([1]), json!({"nested": {}}), json!("text"), json!({"list": [1]})] {
        let failed = refuse(&call, 409, &json!({"message": "m", "code": "c", "param": null, "details": details}));
        assert_eq!((failed.message.as_str(), failed.details), ("m", BTreeMap::new()));
    }
    let page = call.handle_answer(502, b"<html>").expect_err("no envelope");
    assert_eq!((page.status, page.code), (502, None));
    assert!(page.message.starts_with("something between here and core answered with status 502; "), "{}", page.message);
    assert_eq!(call.handle_failure().message, "core did not answer");
}

/// D 96. Whoever asks learns whether the request was certainly refused; a lost answer to a write is unknown.
#[test]
fn an_unknown_outcome_is_told_apart_from_a_refusal() {
    let call = remove_node(id(2));
    let error = json!({"message": "m", "code": "runtime_node_in_use"});
    assert_eq!(refuse(&call, 409, &error).known(), Known::Refused);
    assert_eq!(refuse(&call, 503, &error).known(), Known::Refused);
    assert_eq!(refuse(&call, 500, &error).known(), Known::Unknown);
    assert_eq!(call.handle_failure().known(), Known::Unknown);
    assert_eq!(call.handle_answer(200, b"{}").map_err(|failed| failed.known()), Err(Known::Unknown));
    assert_eq!(update_deployment(String::new()).handle_failure().known(), Known::Unknown);
    assert_eq!(refuse(&update_deployment(String::new()), 400, &json!({})).known(), Known::Unknown);
}

/// D 90. An answer about another node is refused, in a list as alone.
#[test]
fn an_answer_about_another_node_is_refused() {
    let deleted = json!({"id": id(2), "deleted": true});
    assert!(answered(&remove_node(id(2)), &deleted).is_ok());
    assert_eq!(answered(&remove_node(id(3)), &deleted), invalid());
    let held = |node| {
        json!({"deployment_generation": 3, "diagnostic": "", "id": id(7), "node_id": node, "tenant_id": id(4),
            "session_id": id(5), "environment_id": id(6), "state": "running", "compute_phase": "disabled",
            "compute_phase_changed_at": null, "initialization": "", "created_at": "2026-01-01T00:00:00.000Z"})
    };
    let call = list_allocations(id(2));
    assert!(answered(&call, &json!({ "data": [held(id(2)), held(id(2))] })).is_ok());
    assert_eq!(answered(&call, &json!({ "data": [held(id(2)), held(id(3))] })), invalid());
}

/// D 99. A detail keeps the rules of the node in it.
#[test]
fn a_node_detail_keeps_the_rules_of_a_node() {
    let node = Id::parse(detail()["id"].as_str().expect("an id")).expect("an id");
    let mut broken = detail();
    broken["rollout"]["state"] = json!("ready");
    broken["rollout"]["diagnostic"] = json!("docker_unavailable");
    assert_eq!(answered(&read_node(node, Range::Hour), &broken), invalid());
    broken["rollout"]["state"] = json!("failed");
    assert!(answered(&read_node(node, Range::Hour), &broken).is_ok());
}

#[test]
fn a_call_shows_its_route_and_never_its_body() {
    let shown = format!("{:?}", update_deployment(r#"{"credential":{"api_key":"secret"}}"#.to_owned()));
    assert!(shown.contains("/core/v1/sandbox/deployment") && !shown.contains("secret"), "{shown}");
}

/// D 92. Discovery is one request on its Core-key route; only the two fields of a row pass, and neither list passes for
/// the other.
#[test]
fn a_discovery_passes_its_own_list_alone() {
    let endpoint = Some(("https://api.sand.example", "sand.example"));
    let templates = discover_templates(KEY, endpoint);
    assert_eq!((templates.method, templates.path.as_str()), (Method::Post, "/core/v1/sandbox/providers/e2b/discovery"));
    let sent: Value = serde_json::from_str(templates.body.as_deref().expect("a body")).expect("json");
    let configuration = json!({"api_url": "https://api.sand.example", "domain": "sand.example"});
    assert_eq!(sent, json!({"configuration": configuration, "credential": {"api_key": KEY}, "query": {}}));
    let builds = discover_builds(KEY, None, "base");
    let sent: Value = serde_json::from_str(builds.body.as_deref().expect("a body")).expect("json");
    assert_eq!(sent, json!({"configuration": {}, "credential": {"api_key": KEY}, "query": {"template": "base"}}));

    let template = json!({"id": "base", "names": ["base", "other"]});
    let read = answered(&templates, &json!({ "templates": [template] })).expect("templates");
    assert_eq!((read.templates.len(), read.templates[0].0.names.len()), (1, 2));
    assert!(answered(&templates, &json!({"templates": []})).is_ok());
    let build = json!({"id": id(7), "cpus": 2, "memory_mib": 512});
    let read = answered(&builds, &json!({ "builds": [build] })).expect("builds");
    assert_eq!((read.builds[0].0.cpus, read.builds[0].0.memory_mib), (2, 512));

    for broken in [
        json!({"builds": []}),
        json!({"templates": null}),
        json!({"templates": [], "builds": []}),
        json!({"templates": [{"id": "base"}]}),
        json!({"templates": [{"id": "base", "names": [], "api_key": KEY}]}),
        json!({"templates": [["base", []]]}),
    ] {
        assert_eq!(answered(&templates, &broken), invalid(), "{broken}");
    }
    for broken in [
        json!({"templates": []}),
        json!({"builds": [{"id": id(7), "cpus": 2}]}),
        json!({"builds": [{"id": "x", "cpus": 2, "memory_mib": 512}]}),
    ] {
        assert_eq!(answered(&builds, &broken), invalid(), "{broken}");
    }
    let reflected = json!({"message": KEY, "type": KEY, "code": "sandbox_configuration_invalid", "param": KEY});
    let failed = refuse(&templates, 400, &reflected);
    assert!(!format!("{failed:?} {failed}").contains(KEY), "{failed:?}");
}

/// D 101. A selection is sent as the caller wrote it: a key that is left out is not sent, one that is given once.
#[test]
fn a_selection_is_sent_as_it_was_written() {
    let kept = r#"{"expected_generation":3,"provider":"e2b","configuration":{"template":"t"}}"#;
    let replaced = format!(r#"{{"expected_generation":3,"provider":"e2b","credential":{{"api_key":"{KEY}"}}}}"#);
    for (selection, keys) in [(kept.to_owned(), 0), (replaced, 1)] {
        let call = update_deployment(selection.clone());
        assert_eq!(call.body.as_deref(), Some(selection.as_str()));
        assert_eq!(call.body.expect("a body").matches(KEY).count(), keys);
        assert!(!call.path.contains(KEY));
    }
}

#[test]
fn observations_are_asked_for_by_page() {
    assert_eq!(list_runtime_observations(None).path, "/core/v1/sandbox/runtime-observations");
    let next = list_runtime_observations(Some(id(7)));
    assert_eq!(next.path, format!("/core/v1/sandbox/runtime-observations?after={}", id(7)));
    let nothing = json!({"object": "list", "data": [], "has_more": false, "first_id": null, "last_id": null});
    assert!(answered(&next, &nothing).is_ok());
    let mut more = nothing.clone();
    more["has_more"] = json!(true);
    assert_eq!(answered(&next, &more), invalid());
}
