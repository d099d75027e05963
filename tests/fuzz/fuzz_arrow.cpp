#include "fuzz/fuzz_target.h"
#include "fuzz/table_reading.h"

/// Any bytes as an Arrow file or stream give rows or `gradus::Error`, and never bytes of another
/// place.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradus::fuzz::read_table(data, size, "arrow");
  return 0;
}
