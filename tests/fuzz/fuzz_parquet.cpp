#include "fuzz/fuzz_target.h"
#include "fuzz/table_reading.h"

/// Any bytes as a Parquet file give rows or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradus::fuzz::read_table(data, size, "parquet");
  return 0;
}
