-- What has ended stays as a record and must not slow down heartbeats, counts and the owner's looks for work: each index
-- has the condition that those queries have.
DROP INDEX runtime_allocations_node;
CREATE INDEX runtime_allocations_open ON runtime_allocations (node_id) WHERE state <> 'released';
CREATE INDEX environments_pending ON environments (session_id) WHERE status = 'pending';
