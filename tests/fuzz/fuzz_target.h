#pragma once

#include <cstddef>
#include <cstdint>

/// What a fuzzer defines and its driver (libFuzzer or driver.cpp) calls: reads `size` bytes at
/// `data` as the file that it is about. Returns 0. Must not fail, whatever the bytes are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
