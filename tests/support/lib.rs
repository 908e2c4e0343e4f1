//! What the end-to-end tests share: finding built outputs, recording, replaying.
