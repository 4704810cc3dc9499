//! The hashes of cached pages, as KV events carry them, kept per node while somebody wants them.
//!
//! A page's digest is SHA-256 over the digest of the page before it and the token ids of the page (`behaviour.md` section 9);
//! its hash is the first 8 bytes of that. A node keeps the hashes of its pages and, once it was asked for, the digest of its
//! last page, from which a leaf below it goes on. A digest that is not known is computed from the nearest one above it: most
//! nodes that a split makes are never built upon. Nothing here is read by the scheduler.

use sha2::{Digest, Sha256};
use slotmap::SecondaryMap;

use crate::content::{Contents, Run, StreamKey};
use crate::tree::{NodeKey, Tree};

/// How much of an event is made: what nobody reads is not computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventDetail {
    /// What happened and to how many blocks: O(1) an event.
    #[default]
    Counts,
    /// The hash of each block and of its parent too: one SHA-256 a page stored.
    Hashes,
    /// The token ids of stored blocks too, as runs.
    HashesAndTokens,
}

/// SHA-256 of a page, chained over the pages before it.
type PageDigest = [u8; 32];

#[derive(Debug, Default)]
struct NodeHashes {
    /// The hash of each page of the edge.
    pages: Vec<i64>,
    /// The digest of the last page, if it was asked for.
    last: Option<PageDigest>,
}

/// The hashes of all nodes, empty while only counts are wanted.
#[derive(Debug)]
pub(crate) struct BlockHashes {
    pub(crate) detail: EventDetail,
    page_size: u32,
    nodes: SecondaryMap<NodeKey, NodeHashes>,
    /// Bytes hashed over the worker's life, for the profile.
    pub(crate) bytes_hashed: u64,
}

impl BlockHashes {
    pub(crate) fn new(page_size: u32) -> BlockHashes {
        BlockHashes { detail: EventDetail::Counts, page_size, nodes: SecondaryMap::new(), bytes_hashed: 0 }
    }

    /// Whether hashes are kept.
    #[inline]
    pub(crate) fn are_kept(&self) -> bool {
        self.detail > EventDetail::Counts
    }

    /// The hashes of a node's pages, none while only counts are wanted.
    pub(crate) fn of(&self, node: NodeKey) -> &[i64] {
        self.nodes.get(node).map_or(&[], |hashes| &hashes.pages)
    }

    /// The hash of a node's last page.
    pub(crate) fn last_of(&self, node: NodeKey) -> i64 {
        self.of(node).last().copied().unwrap_or_default()
    }

    /// Hashes the pages of a new leaf.
    pub(crate) fn leaf_added(&mut self, tree: &Tree, contents: &Contents, leaf: NodeKey) {
        let row = &tree.nodes[leaf];
        let before = self.digest_of(tree, contents, row.parent);
        let mut pages = Vec::with_capacity((row.tokens() / self.page_size) as usize);
        let last = self.chain(contents, row.stream, (row.start, row.end), before, |hash| pages.push(hash));
        self.count(row.tokens());
        self.nodes.insert(leaf, NodeHashes { pages, last });
    }

    /// Gives the upper half of a split the first pages of the lower one.
    pub(crate) fn split(&mut self, tree: &Tree, upper: NodeKey, lower: NodeKey) {
        if let Some(hashes) = self.nodes.get_mut(lower) {
            let below = hashes.pages.split_off((tree.nodes[upper].tokens() / self.page_size) as usize);
            let pages = std::mem::replace(&mut hashes.pages, below);
            self.nodes.insert(upper, NodeHashes { pages, last: None });
        }
    }

    /// Takes a split back, before the tree does.
    pub(crate) fn undo_split(&mut self, upper: NodeKey, lower: NodeKey) {
        if let Some(mut above) = self.nodes.remove(upper) {
            let hashes = &mut self.nodes[lower];
            above.pages.append(&mut hashes.pages);
            hashes.pages = above.pages;
        }
    }

    /// Forgets a node that is gone for good.
    pub(crate) fn forget(&mut self, node: NodeKey) {
        self.nodes.remove(node);
    }

    /// The digest of a node's last page; none at the root.
    fn digest_of(&mut self, tree: &Tree, contents: &Contents, node: NodeKey) -> Option<PageDigest> {
        if node == tree.root() {
            return None;
        }
        let row = tree.nodes[node];
        let (mut above, mut known) = (node, None);
        while above != tree.root() {
            known = self.nodes[above].last;
            if known.is_some() {
                break;
            }
            above = tree.nodes[above].parent;
        }
        let from = tree.nodes[above].end;
        let digest = self.chain(contents, row.stream, (from, row.end), known, |_| ());
        self.count(row.end - from);
        self.nodes[node].last = digest;
        digest
    }

    fn count(&mut self, tokens: u32) {
        let digests = u64::from(tokens / self.page_size) * size_of::<PageDigest>() as u64;
        self.bytes_hashed += u64::from(tokens) * size_of::<u32>() as u64 + digests;
    }

    /// Hashes the pages of a slice of a stream one after the other, and returns the last digest.
    fn chain(
        &self,
        contents: &Contents,
        stream: StreamKey,
        (start, end): (u32, u32),
        before: Option<PageDigest>,
        mut each: impl FnMut(i64),
    ) -> Option<PageDigest> {
        let mut digest = before;
        // What is hashed for a page lies in one piece: the hasher is faster with one long input than with many short ones.
        let mut page = Vec::with_capacity(size_of::<PageDigest>() + self.page_size as usize * size_of::<u32>());
        page.extend(digest.iter().flatten());
        let mut left = self.page_size;
        for token in contents.runs(stream, start, end).flat_map(Run::tokens) {
            page.extend_from_slice(&token.to_le_bytes());
            left -= 1;
            if left == 0 {
                let hashed: PageDigest = Sha256::digest(&page).into();
                each(event_hash(&hashed));
                digest = Some(hashed);
                page.clear();
                page.extend_from_slice(&hashed);
                left = self.page_size;
            }
        }
        digest
    }

    /// The hashes of a node's whole path from scratch, for the checks.
    pub(crate) fn recomputed(&self, tree: &Tree, contents: &Contents, node: NodeKey) -> Vec<i64> {
        let row = &tree.nodes[node];
        let mut path = Vec::new();
        self.chain(contents, row.stream, (0, row.end), None, |hash| path.push(hash));
        path.split_off((row.start / self.page_size) as usize)
    }
}

/// The first 8 bytes of a digest, big-endian, as a signed number.
fn event_hash(digest: &PageDigest) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}
