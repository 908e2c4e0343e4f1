//! graph_exec
use crate::op::Executor;use crate::queue::Chaos;
#[derive(Debug)] pub(crate) struct GraphRun;
impl GraphRun{pub(crate) fn execute(&self,_:&mut Executor,_:Option<&mut Chaos>){}}
