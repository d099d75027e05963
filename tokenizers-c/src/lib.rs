//! C ABI of gradus over the `tokenizers`, `minijinja` and `fancy-regex` crates; the contract is in
//! include/gradus_tokenizers_c.h.

#[global_allocator]
static ALLOCATOR: limits::CountingAllocator = limits::CountingAllocator;

mod abi;
mod current;
mod encode;
mod expression;
mod limits;
mod python;
mod stack;
mod template;
mod tokenizer;
mod train;
mod unicode;
