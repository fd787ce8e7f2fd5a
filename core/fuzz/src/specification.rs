//! What an administrator or a disk may say of a deployment: one value has one digest, in whatever order it is written.

use arbitrary::{Arbitrary, Unstructured};
use palisade_core::deployment::contract::{Provider, Resource, RuntimeMember};
use palisade_core::deployment::selection::Selection;
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Digest;
use serde_json::{Map, Value};

/// The first byte chooses the provider, the rest is the text; or, for odd bytes, the parts of a value.
pub fn run(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    let provider = Provider::ALL[usize::from(choice / 2) % Provider::ALL.len()];
    if choice % 2 == 0 {
        text(provider, rest);
    } else if let Ok(members) = Members::arbitrary(&mut Unstructured::new(rest)) {
        written(provider, &members);
    }
}

fn text(provider: Provider, text: &[u8]) {
    drop(Selection::parse(text));
    let Ok(specification) = Specification::parse(provider, text) else { return };
    same(&specification);
    let value: Value = serde_json::from_slice(text).expect("strict JSON is JSON");
    for order in [Order::Sorted, Order::Reversed] {
        let reordered = Specification::parse(provider, order.write(&value).as_bytes()).expect("only the order changed");
        assert_eq!(reordered.canonical(), specification.canonical());
        assert_eq!(reordered.digest(), specification.digest());
    }
}

/// What is stored is the specification again, and so is what is shown.
fn same(specification: &Specification) {
    let provider = specification.provider();
    let stored = Specification::parse(provider, specification.stored().as_bytes()).expect("the stored form is valid");
    assert_eq!(&stored, specification);
    assert_eq!(stored.digest(), specification.digest());
    assert_eq!(Specification::check(provider, &specification.draft()).as_ref(), Ok(specification));
}

/// Sizes and identities, valid or not, and the order in which they are written.
#[derive(Arbitrary, Debug)]
struct Members {
    sizes: [Option<i64>; 4],
    near: [Option<i8>; 4],
    identities: [Option<[u8; 32]>; 6],
    broken: Option<(u8, u8)>,
    expected_generation: u64,
    configuration: Option<[String; 3]>,
    credential: Option<String>,
}

fn written(provider: Provider, members: &Members) {
    let value = members.value(provider);
    let parse = |order: Order| Specification::parse(provider, order.write(&value).as_bytes());
    let (sorted, reversed) = (parse(Order::Sorted), parse(Order::Reversed));
    assert_eq!(sorted, reversed);
    select(provider, members, &value, sorted.as_ref().ok());
    if let Ok(specification) = sorted {
        same(&specification);
        assert_eq!(specification.digest(), reversed.expect("equal").digest());
    }
}

/// A selection body says the same as the specification in it.
fn select(provider: Provider, members: &Members, value: &Value, specification: Option<&Specification>) {
    let mut body = value.clone();
    body["expected_generation"] = Value::from(members.expected_generation);
    body["provider"] = Value::from(provider.name());
    if let Some(configuration) = &members.configuration {
        let [template, api_url, domain] = configuration;
        body["configuration"] = if provider == Provider::E2b {
            serde_json::json!({ "template": template, "api_url": api_url, "domain": domain })
        } else {
            serde_json::json!({})
        };
    }
    if let Some(key) = &members.credential {
        body["credential"] = serde_json::json!({ "api_key": key });
    }
    let read = [Order::Sorted, Order::Reversed].map(|order| Selection::parse(order.write(&body).as_bytes()));
    assert_eq!(read[0], read[1]);
    if let Ok(selection) = &read[0] {
        assert_eq!((selection.provider, selection.expected_generation), (provider, members.expected_generation));
        assert_eq!(Specification::check(provider, &selection.draft).ok().as_ref(), specification);
    }
}

impl Members {
    /// Sizes stand near a bound where `near` says so.
    fn value(&self, provider: Provider) -> Value {
        let sizes = Resource::ALL.into_iter().zip(self.sizes.iter().zip(self.near));
        let resources = sizes.filter_map(|(resource, (size, near))| {
            let bounds = resource.bounds(provider);
            let bound = if near.unwrap_or(0) < 0 { bounds.max } else { bounds.min };
            let value = near.map(|near| i64::from(bound) + i64::from(near % 3)).or(*size)?;
            Some((resource.name().to_owned(), Value::from(value)))
        });
        let identities = RuntimeMember::ALL.into_iter().zip(&self.identities);
        let runtime = identities.enumerate().filter_map(|(at, (member, identity))| {
            let (prefix, digits) = member.pattern();
            let digest = Digest::of(&(*identity)?).to_string();
            let mut text = format!("{prefix}{}", &digest[..digits]);
            if let Some((which, byte)) = self.broken
                && usize::from(which) == at
            {
                text.push(char::from(byte));
            }
            Some((member.name().to_owned(), Value::from(text)))
        });
        let (resources, runtime): (Map<_, _>, Map<_, _>) = (resources.collect(), runtime.collect());
        let mut value = Map::from_iter([("resources".to_owned(), resources.into())]);
        if !runtime.is_empty() {
            value.insert("runtime".to_owned(), runtime.into());
        }
        value.into()
    }
}

#[derive(Clone, Copy)]
enum Order {
    Sorted,
    Reversed,
}

impl Order {
    fn write(self, value: &Value) -> String {
        let Value::Object(members) = value else { return value.to_string() };
        let mut members: Vec<_> = members.iter().collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        if matches!(self, Self::Reversed) {
            members.reverse();
        }
        let members =
            members.into_iter().map(|(name, value)| format!("{}: {}", Value::from(&**name), self.write(value)));
        format!("{{ {} }}", members.collect::<Vec<_>>().join(" ,"))
    }
}
