//! One history: run it, and make a failing one as small as it gets.

use std::fmt;

use crate::books::Broken;
use crate::coverage::{Coverage, Tally};
use crate::plan::{Plan, Weather};
use crate::sabotage::Sabotage;
use crate::world::World;

/// What one seed makes happen.
#[derive(Debug, Clone)]
pub struct History {
    plan: Plan,
    sabotage: Option<Sabotage>,
}

/// A broken promise, with the smallest plan that still breaks one.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was broken, in the shrunken history.
    pub broken: Broken,
    plan: Plan,
    trace: Vec<String>,
}

/// Events that one history may take before it counts as never ending.
const STEPS_MAX: u64 = 400_000;
/// Lines of the trace that are printed.
const TRACE_LINES: usize = 120;

impl History {
    /// The history of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { plan: Plan::of(seed), sabotage: None }
    }

    /// The history of `seed`, with a fault planted in a shell.
    #[must_use]
    pub fn sabotaged(seed: u64, sabotage: Sabotage) -> Self {
        Self { plan: Plan::of(seed), sabotage: Some(sabotage) }
    }

    /// Lets it happen. Adds what was reached to `coverage`.
    ///
    /// # Errors
    /// A promise was broken; the history is shrunk before it is given back.
    pub fn run(&self, coverage: &mut Coverage) -> Result<(), Box<Failure>> {
        let (broken, reached) = happen(&self.plan, self.sabotage);
        coverage.add_history(&reached);
        match broken {
            None => Ok(()),
            Some(broken) => Err(Box::new(self.explain(broken))),
        }
    }

    /// [`History::run`] without the shrinking: whether a promise was broken.
    pub(crate) fn breaks(&self, coverage: &mut Coverage) -> bool {
        let (broken, reached) = happen(&self.plan, self.sabotage);
        coverage.add_history(&reached);
        broken.is_some()
    }

    fn explain(&self, broken: Broken) -> Failure {
        let plan = self.shrink(&broken);
        let mut world = World::new(plan.clone(), self.sabotage, true);
        run(&mut world);
        let broken = world.books.broken().cloned().unwrap_or(broken);
        Failure { seed: self.plan.seed, broken, plan, trace: world.take_trace() }
    }

    /// Leaves out whatever the same promise is broken without.
    fn shrink(&self, broken: &Broken) -> Plan {
        let mut plan = self.plan.clone();
        let fails = |plan: &Plan| {
            let (found, _) = happen(plan, self.sabotage);
            found.is_some_and(|found| found.promise == broken.promise)
        };
        let calm = Plan { weather: Weather { latency_ms: 2, ..Weather::default() }, ..plan.clone() };
        if fails(&calm) {
            plan = calm;
        }
        let mut size = plan.events.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < plan.events.len() {
                let mut smaller = plan.clone();
                let end = (at + size).min(plan.events.len());
                drop(smaller.events.drain(at..end));
                if fails(&smaller) {
                    plan = smaller;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        while let Some(simpler) = simpler(&plan).into_iter().find(|simpler| fails(simpler)) {
            plan = simpler;
        }
        plan
    }
}

/// The same events with steady clocks, or with one kind of weather less.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut steady = plan.clone();
    steady.shape.drift_ppm = 0;
    let steady = (plan.shape.drift_ppm > 0).then_some(steady);
    let calmer = plan.weather.calmer().into_iter().map(|weather| Plan { weather, ..plan.clone() });
    steady.into_iter().chain(calmer).collect()
}

fn happen(plan: &Plan, sabotage: Option<Sabotage>) -> (Option<Broken>, Tally) {
    let mut world = World::new(plan.clone(), sabotage, false);
    run(&mut world);
    (world.books.broken().cloned(), world.cover)
}

fn run(world: &mut World) {
    let mut steps = 0;
    while world.step() {
        steps += 1;
        if steps > STEPS_MAX {
            world.books.fail("convergence", format!("the history takes more than {STEPS_MAX} events"));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks {}", self.seed, self.broken)?;
        writeln!(f, "the smallest history that still does:")?;
        write!(f, "{}", self.plan)?;
        let skipped = self.trace.len().saturating_sub(TRACE_LINES);
        if skipped > 0 {
            writeln!(f, "  … {skipped} earlier lines …")?;
        }
        for line in &self.trace[skipped..] {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
