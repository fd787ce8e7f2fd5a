//! The rules of the microsandbox provider: names, images, construction, readiness, and the two programs that it talks to
//! (node-host §8).
//!
//! A sandbox is a small virtual machine. The node never links microsandbox's own library: it asks the *helper*, a process
//! of its own for each operation ([`helper`]), and, for images, the pinned `msb` program itself ([`msb`]).
//!
//! - Never is an answer of either program believed that is not exactly what was asked for, and nothing beside it
//!   (`whatever_is_not_a_whole_answer_is_unknown`, `an_inspection_is_believed_only_when_it_is_exact`,
//!   `a_native_identity_never_changes`).
//! - Never is a silence, an abnormal end or an unknown code anything but an unknown outcome
//!   (`whatever_is_not_a_whole_answer_is_unknown`, `codes_have_their_meaning_and_unknown_ones_none`).
//! - Never is an image called available by a name that does not pin it (`an_image_is_pinned_by_its_complete_digest`).

pub mod answer;
pub mod helper;
pub mod image;
pub mod msb;
pub mod name;
pub mod native;
pub mod ours;
pub mod readiness;
