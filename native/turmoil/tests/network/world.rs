//! One Core and many nodes in one simulated network.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use palisade_control::http;
use palisade_control::hub::{self, Hub, Outcome, Placement};
use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::generation::{Found, Table};
use palisade_core::operation::Operation;
use palisade_core::session::node::Node;
use palisade_core::testing::health;
use palisade_core::units::{Id, OwnerEpoch};
use palisade_core::wire::payload::GenerationReference;
use palisade_node::{Connections, Dial, DialError, Dialer, Host, Sampler, Work};
use palisade_provider::Provider;
use palisade_provider::testing::{FaultProvider, reference};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpListener;

use crate::records::{Records, credential, digest, generation, identity, node_id};
use crate::stream::{Door, Simulated, Trace, Wire};

/// Port of Core.
const PORT: u16 = 80;

/// How the world is made.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Machines with nodes on them.
    pub(crate) hosts: usize,
    /// Nodes on each machine.
    pub(crate) nodes: usize,
    pub(crate) latency_ms: (u64, u64),
    pub(crate) tick_ms: u64,
    /// Segments that a connection holds before it is not written any more.
    pub(crate) segments: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 1, hosts: 1, nodes: 1, latency_ms: (1, 20), tick_ms: 5, segments: 65_536 }
    }
}

type Job = Box<dyn FnOnce(Hub) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The network with everybody in it.
pub(crate) struct World<'a> {
    pub(crate) sim: turmoil::Sim<'a>,
    pub(crate) trace: Trace,
    pub(crate) records: Records,
    providers: Vec<Arc<FaultProvider>>,
    /// What Core is to do, in its own runtime.
    jobs: UnboundedSender<Job>,
    /// Whether Core's process runs; its host is there in any case.
    running: watch::Sender<bool>,
}

impl World<'_> {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut builder = turmoil::Builder::new();
        let (least, most) = plan.latency_ms;
        builder
            .rng_seed(plan.seed)
            .tick_duration(Duration::from_millis(plan.tick_ms))
            .min_message_latency(Duration::from_millis(least))
            .max_message_latency(Duration::from_millis(most))
            .simulation_duration(Duration::from_secs(86_400))
            .tcp_capacity(plan.segments);
        let mut sim = builder.build();
        let trace = Trace::default();
        let records = Records::new(trace.clone());
        let (jobs, queue) = unbounded_channel();
        let running = watch::Sender::new(true);
        add_core(&mut sim, &records, &trace, queue, &running);
        let mut providers = Vec::new();
        for host in 0..plan.hosts {
            let names: Vec<_> = (0..plan.nodes).map(|node| host * plan.nodes + node).collect();
            providers.extend(add_nodes(&mut sim, &records, &trace, plan, &format!("host-{host}"), &names));
        }
        Self { sim, trace, records, providers, jobs, running }
    }

    /// Ends everything on a host at once; its network still tells the others.
    pub(crate) fn crash(&mut self, host: &str) {
        self.trace.mute(true);
        self.sim.crash(host);
        self.trace.mute(false);
    }

    /// Ends Core's process: its host closes all connections and refuses new ones.
    pub(crate) fn stop_core(&self) {
        self.running.send_replace(false);
    }

    /// Starts another process of Core.
    pub(crate) fn start_core(&self) {
        self.running.send_replace(true);
    }

    /// A second machine that holds the identity of node `number`.
    pub(crate) fn add_clone(&mut self, plan: Plan, number: usize) {
        let seed = Plan { seed: plan.seed + 1_000, ..plan };
        add_nodes(&mut self.sim, &self.records, &self.trace, seed, "clone", &[number]);
    }

    pub(crate) fn provider(&self, number: usize) -> &Arc<FaultProvider> {
        &self.providers[number]
    }

    pub(crate) fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// Lets so much virtual time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.sim.step().expect("nobody in the simulation fails");
        }
    }

    pub(crate) fn pass_secs(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// Core calls a node; the outcome is there once it is known.
    pub(crate) fn call(
        &self,
        number: usize,
        operation: Operation<'static>,
        budget: Duration,
    ) -> Arc<Mutex<Option<Outcome>>> {
        let (outcome, trace) = (Arc::new(Mutex::new(None)), self.trace.clone());
        let given = Arc::clone(&outcome);
        let placement = Placement { provider: Kind::Docker, node: node_id(number), generation: generation() };
        let job: Job = Box::new(move |hub| {
            Box::pin(async move {
                let answer = hub.call(placement, reference(number as u64), operation, budget).await;
                trace
                    .add(format!("core has an outcome of node-{number}: {}", if answer.is_ok() { "ok" } else { "no" }));
                *given.lock().unwrap() = Some(answer);
            })
        });
        assert!(self.jobs.send(job).is_ok(), "core is there");
        outcome
    }
}

fn add_core(
    sim: &mut turmoil::Sim<'_>,
    records: &Records,
    trace: &Trace,
    jobs: UnboundedReceiver<Job>,
    running: &watch::Sender<bool>,
) {
    let (records, trace, running) = (records.clone(), trace.clone(), running.subscribe());
    let jobs = Arc::new(tokio::sync::Mutex::new(jobs));
    sim.host("core", move || {
        let (records, trace, jobs, mut running) = (records.clone(), trace.clone(), Arc::clone(&jobs), running.clone());
        async move {
            loop {
                running.wait_for(|runs| *runs).await?;
                let mut process = JoinSet::new();
                process.spawn(core(records.clone(), trace.clone(), Arc::clone(&jobs)));
                running.wait_for(|runs| !*runs).await?;
                // Every connection belongs to a task of its own: the hub ends them as the end of a process would.
                process.shutdown().await;
            }
        }
    });
}

/// One life of Core.
async fn core(records: Records, trace: Trace, jobs: Arc<tokio::sync::Mutex<UnboundedReceiver<Job>>>) {
    records.claim();
    let hub = Closing(Hub::new(Arc::new(records.clone())), CancellationToken::new());
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await.expect("the port is free");
    let router = hub::routes::<Hub>().with_state(hub.0.clone()).layer(from_fn_with_state(records, turn_away));
    let serving = http::listen(Door { listener, trace }, router, hub.1.clone());
    let working = async {
        while let Some(job) = jobs.lock().await.recv().await {
            tokio::spawn(job(hub.0.clone()));
        }
    };
    tokio::join!(serving, working);
}

/// A hub and a server that end with their process.
struct Closing(Hub, CancellationToken);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
        self.1.cancel();
    }
}

/// A Core, or something before it, that is too busy and says for how long.
async fn turn_away(State(records): State<Records>, request: Request, next: Next) -> Response {
    match records.turns_away() {
        Some(seconds) => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, seconds.to_string())]).into_response(),
        None => next.run(request).await,
    }
}

fn add_nodes(
    sim: &mut turmoil::Sim<'_>,
    records: &Records,
    trace: &Trace,
    plan: Plan,
    host: &str,
    numbers: &[usize],
) -> Vec<Arc<FaultProvider>> {
    let machines: Vec<_> = numbers.iter().map(|number| Machine::new(trace, plan.seed, host, *number)).collect();
    for machine in &machines {
        records.enroll(machine.id, &machine.name);
    }
    let providers = machines.iter().map(|machine| Arc::clone(&machine.provider)).collect();
    sim.host(host, move || {
        let machines = machines.clone();
        async move {
            let mut running = JoinSet::new();
            for machine in machines {
                running.spawn(machine.connections().run(CancellationToken::new()));
            }
            running.join_all().await;
            pending().await
        }
    });
    providers
}

/// One node's host: what survives a crash, and what the shell asks of it.
#[derive(Clone)]
struct Machine {
    id: Id,
    name: String,
    trace: Trace,
    provider: Arc<FaultProvider>,
    dialer: Arc<Dialer<Simulated>>,
    epoch: Arc<Mutex<Option<OwnerEpoch>>>,
    random: Arc<Mutex<u64>>,
}

impl Machine {
    fn new(trace: &Trace, seed: u64, host: &str, number: usize) -> Self {
        let (id, name) = (node_id(number), format!("node-{number}"));
        let holder = if host == "clone" { format!("clone-{number}") } else { name.clone() };
        let network = Simulated { trace: trace.clone(), name: holder.clone() };
        let dialer = Dialer::new(network, "http://core", &id.to_string(), &credential(id)).unwrap();
        Self {
            id,
            name: holder,
            trace: trace.clone(),
            provider: Arc::new(FaultProvider::new(generation())),
            dialer: Arc::new(dialer),
            epoch: Arc::default(),
            random: Arc::new(Mutex::new(seed << 32 | number as u64)),
        }
    }

    fn connections(self) -> Connections<Self> {
        let reference = GenerationReference { generation: generation(), specification_digest: digest() };
        let found = Found::Provider(self.provider.declaration().clone());
        let epoch = *self.epoch.lock().unwrap();
        let node = Node::new(identity(self.id), epoch, Table::new([(reference, found)]));
        let provider: Arc<dyn Provider> = self.provider.clone();
        Connections::new(node, self, BTreeMap::from([(generation(), provider)]))
    }
}

impl Host for Machine {
    type Stream = Wire;

    fn dial(&self) -> Dial<Wire> {
        let (dialer, trace, name) = (Arc::clone(&self.dialer), self.trace.clone(), self.name.clone());
        trace.add(format!("{name} dials"));
        Box::pin(async move {
            let dialled = dialer.dial().await;
            let came = match &dialled {
                Ok(_) => "is let in".to_owned(),
                Err(DialError::Unreachable(_)) => "reaches nobody".to_owned(),
                Err(error) => format!("is refused: {error}"),
            };
            trace.add(format!("{name} {came}"));
            dialled
        })
    }

    fn sampler(&self) -> Box<Sampler> {
        Box::new(|| Box::pin(async { Some(health([])) }))
    }

    fn store_epoch(&self, epoch: OwnerEpoch) -> Work<bool> {
        *self.epoch.lock().unwrap() = Some(epoch);
        Box::pin(async { true })
    }

    /// `SplitMix64`.
    fn random(&self) -> u64 {
        let mut state = self.random.lock().unwrap();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
