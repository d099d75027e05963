#include <gradus/core/error.h>
#include <gradus/formats/checksum.h>

#include "formats/byte_readers.h"
#include "fuzz/fuzz_target.h"
#include "zip_checksums.h"

namespace {

void touch(const gradus::StateTree& tree) {
  if (tree.is_tensor()) {
    const auto storage = tree.as_tensor().storage();
    gradus::checksum_of(storage.data(), storage.nbytes());
    if (tree.as_tensor().numel() > 0) {  // the last element is the furthest
      const auto& tensor = tree.as_tensor();
      auto last = tensor;
      for (int64_t dim = tensor.dim(); dim > 0; --dim) last = last.select(0, last.size(0) - 1);
      gradus::checksum_of(last.const_data_ptr(), last.element_size());
    }
  }
  if (tree.is_list() || tree.is_tuple())
    for (const auto& item : tree.items()) touch(item);
  if (tree.is_dict())
    for (const auto& entry : tree.entries()) touch(entry.second);
}

}  // namespace

/// Any bytes give a tree or `gradus::Error`; tensors lie within their storages.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    touch(gradus::read_torch_file(gradus::MappedFile::from_bytes(
        gradus::without_checksums({reinterpret_cast<const char*>(data), size}), "input")));
  } catch (const gradus::Error&) {
  }
  return 0;
}
