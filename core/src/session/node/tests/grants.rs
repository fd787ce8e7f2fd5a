//! What a drop grant waits for, and what it never survives.

use super::*;

/// Grants the drop of everything that the node asks about, on the connection as it is.
fn grant_all(bench: &mut Bench) {
    let (exchange, references) = ask(bench);
    bench.receive(&acknowledgement(exchange, &references, false));
    assert_eq!(bench.closed, None);
}

/// W 99. A generation that carries out an operation is not removed.
/// W 100. Nor is one whose operation was given up long ago, while it really runs, also after its connection ended.
/// W 101. Once it really ended, the next grant removes it.
#[test]
fn a_grant_waits_for_the_real_end_of_an_operation() {
    let mut bench = three();
    bench.request_at(1, 1, 2, 7, Operation::GetInfo, 1_000);
    bench.frames();
    assert_eq!(bench.executing.len(), 1);
    grant_all(&mut bench);
    assert_eq!(bench.removing, [reference(1)]);
    bench.node.handle_removed(bench.now, generation(1), true);
    bench.drain();
    assert_eq!(bench.removing, [reference(1)], "its caller was told long ago, and still it runs");
    grant_all(&mut bench);
    bench.node.handle_closed(bench.now);
    bench.connect(deployment(3, Some(3)));
    grant_all(&mut bench);
    assert_eq!(bench.removing, [reference(1)], "no end of a connection ends it");
    bench.finish(1, Ok(Answer::Info(info(7))));
    grant_all(&mut bench);
    assert_eq!(bench.removing, [reference(1), reference(2)]);
}

/// W 90. H 164. A removal has two minutes; then its end is asked for, once. What it left waits for a new grant, and all
/// others are asked about again meanwhile.
#[test]
fn a_removal_that_hangs_is_ended_and_holds_up_nobody() {
    let mut bench = three();
    let (exchange, references) = ask(&mut bench);
    // Between two heartbeats: nothing but the removal itself wakes the node when its time is used up.
    bench.wait(5_123);
    bench.receive(&acknowledgement(exchange, &references, false));
    let wait = |bench: &mut Bench, ms: u64| {
        let end = bench.now.after(ms);
        while bench.now < end {
            bench.wait(10_000.min(end.since(bench.now)));
            bench.node.handle_fragment(bench.now);
        }
    };
    wait(&mut bench, 119_999);
    assert!(bench.cancelled_removals.is_empty(), "a moment before");
    for ms in [1, 120_000] {
        wait(&mut bench, ms);
        assert_eq!((&bench.cancelled_removals[..], &bench.closed), (&[generation(1)][..], &None));
    }
    bench.node.handle_removed(bench.now, generation(1), false);
    bench.drain();
    assert_eq!(bench.removing, [reference(1), reference(2)], "the rest of the batch goes on");
    bench.node.handle_removed(bench.now, generation(2), true);
    grant_all(&mut bench);
    assert_eq!(bench.removing, [reference(1), reference(2), reference(1)]);
}

/// W 95, W 96. An answer with an entry more, or with one entry twice, is not the answer either.
/// W 97. The digest of every single entry counts.
#[test]
fn every_entry_of_a_retention_answer_counts() {
    type Change = fn(&mut Vec<GenerationReference>);
    let changes: [Change; 6] = [
        |references| references.push(reference(4)),
        |references| references[2] = reference(4),
        |references| references.swap(1, 2),
        |references| references.retain(|kept| *kept != reference(2)),
        |references| references[1].specification_digest = Digest::of(b"x"),
        |references| references[2].specification_digest = Digest::of(b"x"),
    ];
    for change in changes {
        let mut bench = three();
        let (exchange, mut references) = ask(&mut bench);
        change(&mut references);
        bench.receive(&acknowledgement(exchange, &references, false));
        assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Retention)));
        assert!(bench.removing.is_empty());
    }
}

/// Promise 5. Grants beside deployment facts that cannot be true are not used.
#[test]
fn grants_beside_impossible_deployment_facts_delete_nothing() {
    let foreign = Deployment { specification_digest: Digest::of(b"x"), ..deployment(3, Some(3)) };
    let above = Deployment { serving_generation: Some(generation(4)), ..deployment(3, None) };
    for facts in [foreign, above] {
        let mut bench = three();
        let (exchange, references) = ask(&mut bench);
        let retentions = references.iter().map(|&reference| Retention { reference, keep: false }).collect();
        bench.receive(&Frame::RetentionAck { exchange, retentions, deployment: facts });
        assert!(matches!(bench.closed, Some(Ended::Ownership(Ownership::Deployment(_)))));
        assert!(bench.removing.is_empty());
    }
}

/// The facts beside the grants count first: what has just become the target or the serving pin stays.
#[test]
fn a_generation_that_the_same_answer_pins_is_not_removed() {
    let mut bench = Bench::with([1, 2, 3]);
    bench.connect(deployment(1, None));
    let (exchange, references) = ask(&mut bench);
    let retentions = references.iter().map(|&reference| Retention { reference, keep: false }).collect();
    bench.receive(&Frame::RetentionAck { exchange, retentions, deployment: deployment(3, Some(2)) });
    assert_eq!((&bench.closed, bench.removing.as_slice()), (&None, &[reference(1)][..]));
}
