//! capture
use crate::error::{HipError,HipResult};use crate::op::Op;use crate::stream::Stream;use std::sync::Arc;
#[derive(Debug)] pub(crate) struct Branch;
#[derive(Clone,Debug)] pub(crate) struct Fork;
pub(crate) fn add_op(_:&Arc<Stream>,_:Op)->HipResult{Err(HipError::NOT_SUPPORTED)}
pub(crate) fn abandon(_:&Arc<Stream>){}
pub(crate) fn check_implicit(_:&Arc<Stream>)->HipResult{Ok(())}
pub(crate) fn fork(_:&Arc<Stream>)->HipResult<Fork>{Err(HipError::NOT_SUPPORTED)}
pub(crate) fn join(_:&Arc<Stream>,_:&Fork)->HipResult{Err(HipError::NOT_SUPPORTED)}
pub(crate) fn isolate(_:&Arc<Stream>)->HipResult{Err(HipError::NOT_SUPPORTED)}
pub(crate) fn forbid_unsafe_call()->HipResult{Ok(())}
pub(crate) fn forbid_sync_call()->HipResult{Ok(())}
pub(crate) fn reject(_:&Arc<Stream>, e: HipError)->HipResult{Err(e)}
