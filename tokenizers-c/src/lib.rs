//! C ABI of gradus over the `tokenizers` and `minijinja` crates; the contract is in
//! include/gradus_tokenizers_c.h.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod abi;
mod encode;
mod python;
mod template;
mod tokenizer;
mod train;
