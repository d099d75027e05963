#pragma once

#include <gradus/core/error.h>

#include <new>
#include <stdexcept>
#include <string>

/// \file
/// Memory that runs out is an error with an id that says in which work. Memory that is freed may
/// stay with the program.

namespace gradus {

/// The error for memory that ran out, id G-MEM-1. `doing` says in which work: "reading a.jsonl".
Error out_of_memory(const std::string& doing);

/// Returns what `work` returns. If memory runs out in it, what is thrown is G-MEM-1 with the words
/// that `doing` returns, not a bare `std::bad_alloc`. So is a `std::length_error`: a size that no
/// memory could hold.
///
/// Put it around work whose memory depends on a file; the words are only made when they are needed.
/// An error that says more passes unchanged.
///
///     name_memory_errors([&] { return "reading " + file; }, [&] { return read(file); });
template <class Doing, class Work>
auto name_memory_errors(Doing doing, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw out_of_memory(doing());
  } catch (const std::length_error&) {
    throw out_of_memory(doing());
  }
}

/// Lets the C library keep the memory that is freed, for the next allocation. Returns whether it
/// does so from now on.
///
/// A training step on the CPU frees and takes the same tensors again and again. The GNU C library
/// gives large ones back to the kernel at once, which has to fill their pages with zeros when they
/// are taken again: a tenth of the time of a small model's step. `gradus` calls this first of all;
/// a program of yours may do so at its start, where it has the processor's memory to itself. The
/// program's largest use of memory does not change, but it stays at that until it ends.
///
/// Nothing is changed, and the result is false, where the user chose: with a variable MALLOC_… of
/// the GNU C library or glibc.malloc in GLIBC_TUNABLES. The same with other C libraries.
/// Thread-safety: none; call it before threads are started.
bool keep_freed_memory();

}  // namespace gradus
