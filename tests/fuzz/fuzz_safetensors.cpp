#include <gradus/core/error.h>

#include "formats/byte_readers.h"
#include "fuzz/fuzz_target.h"

/// Any bytes give tensors or `gradus::Error`; tensors lie within the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = gradus::MappedFile::from_bytes(
        std::string(reinterpret_cast<const char*>(data), size), "input");
    for (const auto& [name, tensor] : gradus::read_safetensors(file).tensors)
      gradus::checksum_of(tensor.const_data_ptr(), size_t(tensor.numel()) * tensor.element_size());
  } catch (const gradus::Error&) {
  }
  return 0;
}
