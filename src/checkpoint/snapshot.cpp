#include <gradus/checkpoint/snapshot.h>
#include <gradus/core/files.h>
#include <gradus/formats/torch_file.h>
#include <sys/mman.h>

#include "formats/output_file.h"

namespace gradus {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

// Fresh memory for a copy; large blocks ask for huge pages, which makes the first touch several
// times cheaper.
torch::Tensor fresh_buffer(const torch::Tensor& like) {
  const size_t bytes = like.nbytes();
  if (bytes < kHugePage)
    return torch::empty(like.sizes(), like.options().device(torch::kCPU).requires_grad(false));
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  ::madvise(memory, rounded, MADV_HUGEPAGE);
  return torch::from_blob(
      memory, like.sizes(), [](void* p) { std::free(p); },
      like.options().device(torch::kCPU).requires_grad(false));
}

}  // namespace

WriteFiles torch_file_writer(std::string name, StateTree tree) {
  return [name = std::move(name), tree = std::move(tree)](const std::filesystem::path& folder) {
    return WrittenFiles{{name, write_torch_file(folder / name, tree, Sync::yes)}};
  };
}

WriteFiles text_file_writer(std::string name, std::string text) {
  return [name = std::move(name), text = std::move(text)](const std::filesystem::path& folder) {
    write_file_atomically(folder / name, text);
    return WrittenFiles{{name, {text.size(), checksum_of(text.data(), text.size())}}};
  };
}

WriteFiles text_file_writer(std::string name, TextPieces pieces) {
  return [name = std::move(name), pieces = std::move(pieces)](const std::filesystem::path& folder) {
    OutputFile output(folder / name);
    ChecksummedSink sink([&](const void* data, size_t size) { output.write(data, size); });
    for (const auto& piece : pieces) sink.write(piece->data(), piece->size());
    output.close(Sync::yes);
    return WrittenFiles{{name, sink.written()}};
  };
}

torch::Tensor SnapshotBuffers::copy(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto fits = [&](const torch::Tensor& buffer) {
    return buffer.sizes() == tensor.sizes() && buffer.scalar_type() == tensor.scalar_type();
  };
  if (next_ == buffers_.size())
    buffers_.push_back(fresh_buffer(tensor));
  else if (!fits(buffers_[next_]))
    buffers_[next_] = fresh_buffer(tensor);
  auto& buffer = buffers_[next_++];
  buffer.copy_(tensor.detach());
  return buffer;
}

NamedTensors SnapshotBuffers::copy(const NamedTensors& tensors) {
  NamedTensors copies;
  copies.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, copy(tensor));
  return copies;
}

StateTree SnapshotBuffers::copy(const StateTree& tree) {
  if (tree.is_tensor()) return copy(tree.as_tensor());
  if (tree.is_dict()) {
    StateTree::Dict dict;
    for (const auto& [key, value] : tree.entries()) dict.items.emplace_back(key, copy(value));
    return dict;
  }
  if (tree.is_list() || tree.is_tuple()) {
    std::vector<StateTree> items;
    for (const auto& item : tree.items()) items.push_back(copy(item));
    if (tree.is_tuple()) return StateTree::Tuple{std::move(items)};
    return StateTree::List{std::move(items)};
  }
  return tree;
}

}  // namespace gradus
