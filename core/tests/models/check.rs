//! How a model is run, what it prints, and what is asserted of it.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Explores every state within the model's bounds. No `always` may have a counterexample, and every `sometimes` must
/// have an example, so that nobody believes a model that never went there.
pub(crate) fn prove<M>(name: &str, bounds: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let checker = model.checker().spawn_bfs().join();
    println!("{name}: {bounds}");
    println!(
        "{name}: {} states, {} transitions, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match property.expectation {
            Expectation::Sometimes => assert!(found.is_some(), "{name}: \"{}\" is never reached", property.name),
            Expectation::Always | Expectation::Eventually => {
                let history = numbered(&found.map(steps).unwrap_or_default());
                assert!(history.is_empty(), "{name}: \"{}\" does not hold:\n{history}", property.name);
            }
        }
        println!("{name}: {:?}: {}", property.expectation, property.name);
    }
}

/// Explores a model with a broken rule until the property falls, and prints the shortest history in which it does.
pub(crate) fn refute<M>(name: &str, property: &'static str, model: &M)
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    assert!(model.property(property).expectation.discovery_is_failure());
    let mut fallen = falls(property, model, usize::MAX);
    let mut shortest =
        fallen.take().unwrap_or_else(|| panic!("{name}: \"{property}\" does not notice the broken rule"));
    // The checker reports the last history of a batch, which need not be the shortest one.
    while let Some(shorter) = falls(property, model, shortest.len()) {
        shortest = shorter;
    }
    println!("{name}: \"{property}\" falls:\n{}", numbered(&shortest));
}

/// A history of fewer than `length` actions in which the property falls.
fn falls<M>(property: &'static str, model: &M, length: usize) -> Option<Vec<String>>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let when = HasDiscoveries::AnyOf([property].into());
    // An initial state has depth 1, and states at the greatest depth are not looked at.
    let depth = length.saturating_add(1);
    let checker = model.clone().checker().finish_when(when).target_max_depth(depth).spawn_bfs().join();
    checker.discovery(property).map(steps)
}

fn steps<S, A: Debug>(path: stateright::Path<S, A>) -> Vec<String> {
    path.into_actions().into_iter().map(|action| format!("{action:?}")).collect()
}

fn numbered(steps: &[String]) -> String {
    steps.iter().zip(1..).fold(String::new(), |text, (step, at)| format!("{text}  {at:>2}. {step}\n"))
}
