//! What a consumer of KV events knows: the blocks that are cached, and the digests behind their hashes where token ids said
//! them.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::batch::{BlockStored, KvEvent, Medium};

/// SHA-256 of a block, chained over the blocks before it.
pub type BlockDigest = [u8; 32];

/// A block that is cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    /// How often it was stored: more than once only where namespaces hold the same content.
    copies: u32,
    digest: Option<BlockDigest>,
}

/// What is wrong with an event, from a consumer's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A stored event hangs below a block that is not cached.
    UnknownParent {
        /// That block.
        hash: i64,
    },
    /// A block's hash is not that of its tokens and of the blocks before it.
    BrokenChain {
        /// The block's hash.
        hash: i64,
        /// What its tokens say.
        computed: i64,
    },
    /// A block is stored that is cached already.
    DuplicateStore {
        /// The block's hash.
        hash: i64,
    },
    /// A block is removed that is not cached.
    UnknownRemoval {
        /// The block's hash.
        hash: i64,
    },
}

/// The cached blocks, as all events so far leave them. Nothing depends on the order of the table.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    blocks: HashMap<(i64, Medium), Block>,
    /// Blocks cached, copies counted.
    held: u64,
    /// Blocks whose hash was compared with their tokens.
    verified: u64,
}

impl Mirror {
    /// Blocks that are cached.
    pub fn len(&self) -> u64 {
        self.held
    }

    /// Whether none is cached.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Blocks so far whose hash was compared with their token ids.
    pub fn verified_blocks(&self) -> u64 {
        self.verified
    }

    /// The hash of every cached block, sorted, as often as it is held.
    pub fn hashes(&self) -> Vec<i64> {
        let copies = self.blocks.iter().flat_map(|((hash, _), block)| (0..block.copies).map(|_| *hash));
        let mut hashes: Vec<i64> = copies.collect();
        hashes.sort_unstable();
        hashes
    }

    /// Applies an event, and tells each problem.
    pub fn apply(&mut self, event: &KvEvent, mut tell: impl FnMut(Problem)) {
        match event {
            KvEvent::AllBlocksCleared => {
                self.blocks.clear();
                self.held = 0;
            }
            KvEvent::BlockStored(stored) => self.store(stored, &mut tell),
            KvEvent::BlockRemoved(removed) => {
                let medium = removed.medium.unwrap_or(Medium::Gpu);
                for &hash in &removed.block_hashes {
                    self.remove(hash, medium, &mut tell);
                }
            }
        }
    }

    fn store(&mut self, stored: &BlockStored, tell: &mut impl FnMut(Problem)) {
        let mut chain = self.chain_below(stored, tell);
        let tokens = stored.token_ids.chunks_exact(stored.block_size.max(1) as usize);
        let tokens = tokens.map(Some).chain(std::iter::repeat(None));
        let medium = stored.medium.unwrap_or(Medium::Gpu);
        for (&hash, tokens) in stored.block_hashes.iter().zip(tokens) {
            chain = chain.next(tokens);
            if let Chain::Known(Some(digest)) = chain {
                self.verified += 1;
                let computed = hash_of(&digest);
                if computed != hash {
                    tell(Problem::BrokenChain { hash, computed });
                }
            }
            let block = self.blocks.entry((hash, medium)).or_default();
            if block.copies > 0 {
                tell(Problem::DuplicateStore { hash });
            }
            block.copies += 1;
            block.digest = chain.digest();
            self.held += 1;
        }
    }

    /// Where the chain of a stored event starts.
    fn chain_below(&self, stored: &BlockStored, tell: &mut impl FnMut(Problem)) -> Chain {
        let Some(parent) = stored.parent_block_hash else { return Chain::Known(None) };
        // A parent may be kept in another tier.
        let mut copies = Medium::ALL.into_iter().filter_map(|medium| self.blocks.get(&(parent, medium)));
        match copies.next() {
            Some(block) => block.digest.map_or(Chain::Unknown, |digest| Chain::Known(Some(digest))),
            None => {
                tell(Problem::UnknownParent { hash: parent });
                Chain::Unknown
            }
        }
    }

    fn remove(&mut self, hash: i64, medium: Medium, tell: &mut impl FnMut(Problem)) {
        let Some(block) = self.blocks.get_mut(&(hash, medium)) else {
            tell(Problem::UnknownRemoval { hash });
            return;
        };
        block.copies -= 1;
        self.held -= 1;
        if block.copies == 0 {
            self.blocks.remove(&(hash, medium));
        }
    }
}

/// The digest of the block before, as far as it is known.
#[derive(Clone, Copy)]
enum Chain {
    /// Of the block before, or none at the root.
    Known(Option<BlockDigest>),
    /// Token ids were missing somewhere above.
    Unknown,
}

impl Chain {
    fn next(self, tokens: Option<&[u32]>) -> Chain {
        match (self, tokens) {
            (Chain::Known(before), Some(tokens)) => Chain::Known(Some(block_digest(before.as_ref(), tokens))),
            _ => Chain::Unknown,
        }
    }

    fn digest(self) -> Option<BlockDigest> {
        match self {
            Chain::Known(digest) => digest,
            Chain::Unknown => None,
        }
    }
}

/// The digest of a block of tokens below another block: SHA-256 over that one's digest and each token id as four bytes,
/// little-endian.
pub fn block_digest(before: Option<&BlockDigest>, tokens: &[u32]) -> BlockDigest {
    let mut hasher = Sha256::new();
    if let Some(before) = before {
        hasher.update(before);
    }
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    hasher.finalize().into()
}

/// The hash of a block on the wire: the first 8 bytes of its digest, big-endian, as a signed number.
pub fn hash_of(digest: &BlockDigest) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}
