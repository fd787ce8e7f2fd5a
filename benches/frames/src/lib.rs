//! The frame path beside what nobody can do without.
//!
//! [`pair`] is the one list of what is compared, with targets and ceilings; [`step`] is the same for the sessions. Two
//! benchmarks read them: `instructions` counts under valgrind and is a gate, `times` measures and only prints.

pub mod counted;
pub mod pair;
pub mod plain;
pub mod sample;
pub mod step;
