#pragma once

#include <gradus/core/error.h>

#include <new>
#include <stdexcept>
#include <string>

/// \file
/// What happens when memory runs out: an error with an id that says in which work.

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

}  // namespace gradus
