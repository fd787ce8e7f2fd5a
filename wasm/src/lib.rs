//! Palisade for the Web console.
