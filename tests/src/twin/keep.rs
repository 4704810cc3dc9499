//! What a request has in the tree: its match, what it puts in, and what it gives back.

use super::model::Model;
use super::request::ReqId;
use super::tree::ROOT;

impl Model {
    /// Matches tokens of a request; without a cache nothing matches.
    pub fn match_request(&mut self, id: ReqId, length: i64) -> i64 {
        let request = &mut self.requests[id];
        let Some(tree) = &mut self.tree else {
            request.prefix = 0;
            return 0;
        };
        let tokens = &request.tokens()[..length.max(0) as usize];
        let (node, matched) = tree.match_prefix(request.extra_key.as_deref(), tokens);
        request.node = node;
        request.prefix = matched as i64;
        matched as i64
    }

    /// Puts what a request has computed into the tree while it goes on.
    pub fn keep_unfinished(&mut self, id: ReqId, chunked: bool) {
        let request = &mut self.requests[id];
        let length = request.extend.1.min(request.fill);
        request.prefix = length;
        let Some(tree) = &mut self.tree else { return };
        let tokens = &request.tokens()[..length as usize];
        let space = request.extra_key.clone();
        tree.insert(space.as_deref(), tokens, request.priority.unwrap_or(0), !chunked);
        let (node, matched) = tree.match_prefix(space.as_deref(), tokens);
        if let Some(old) = request.lock.replace(node) {
            tree.unlock(old);
        }
        tree.lock(node);
        request.node = node;
        request.protected = matched as i64;
    }

    /// Takes a request's KV and slot away; with `insert` the tree keeps what it can.
    pub fn release(&mut self, id: ReqId, insert: bool) {
        let page = self.settings.page as usize;
        let request = &mut self.requests[id];
        if let Some(tree) = &mut self.tree {
            if insert {
                let mut tokens = request.tokens();
                tokens.truncate(request.computed as usize);
                let space = request.extra_key.as_deref();
                let priority = request.priority.unwrap_or(0);
                tree.insert(space, &tokens, priority, true);
                let prompt = request.prompt.len() / page * page;
                if 0 < prompt && prompt < tokens.len() / page * page {
                    tree.insert(space, &request.prompt, priority + 1, false);
                }
            }
            if let Some(node) = request.lock.take() {
                tree.unlock(node);
            }
        }
        request.holds_slot = false;
        request.computed = 0;
        request.protected = 0;
        request.node = ROOT;
    }
}
