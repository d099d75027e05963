#include <gradus/core/error.h>
#include <gradus/formats/safetensors.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "formats/output_file.h"
#include "formats/safetensors_dtype.h"

namespace gradus {
namespace {

using nlohmann::ordered_json;

struct Item {
  const std::string* name;
  const torch::Tensor* tensor;
  const SafetensorsDtype* dtype;
};

[[noreturn]] void cannot_write(const std::filesystem::path& file, const std::string& what,
                               const std::string& advice) {
  throw Error("G-ST-5", ErrorKind::model, "cannot write " + file.string() + ": " + what, advice);
}

Item checked_item(const std::filesystem::path& file, const std::string& name,
                  const torch::Tensor& tensor) {
  const auto bad = [&](const std::string& what) {
    cannot_write(file, "tensor '" + name + "' " + what,
                 "safetensors holds dense tensors of plain number types; convert or leave it out.");
  };
  if (name == "__metadata__") bad("has the name that the format keeps for itself");
  if (!tensor.defined()) bad("is undefined");
  if (tensor.layout() != at::kStrided) bad("is not dense");
  if (tensor.is_meta()) bad("is on the meta device and has no data");
  const auto* dtype = find_safetensors_dtype(tensor.scalar_type());
  if (dtype == nullptr)
    bad(std::string("has dtype ") + c10::toString(tensor.scalar_type()) +
        ", which the format does not have");
  return {&name, &tensor, dtype};
}

/// The tensors in the order of the file: by dtype, then by name.
std::vector<Item> ordered_items(const std::filesystem::path& file, const NamedTensors& tensors) {
  std::vector<Item> items;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    items.push_back(checked_item(file, name, tensor));
    if (!names.insert(name).second)
      cannot_write(file, "tensor '" + name + "' appears twice",
                   "Names in a state dict must be unique.");
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.dtype != b.dtype ? a.dtype < b.dtype : *a.name < *b.name;
  });
  return items;
}

/// Length and JSON, padded with spaces so that the data begins at a multiple of 8.
std::string header_bytes(const std::filesystem::path& file, const std::vector<Item>& items,
                         const SafetensorsMetadata& metadata) {
  auto header = ordered_json::object();
  auto& object = header.get_ref<ordered_json::object_t&>();  // appended to directly: a search per
                                                             // name would be quadratic
  if (!metadata.empty()) {
    auto strings = ordered_json::object();
    for (const auto& [key, value] : metadata) strings[key] = value;
    object.emplace_back("__metadata__", std::move(strings));
  }
  uint64_t offset = 0;
  for (const auto& item : items) {
    const auto end = offset + uint64_t(item.tensor->numel()) * item.tensor->element_size();
    object.emplace_back(*item.name, ordered_json{{"dtype", item.dtype->name},
                                                 {"shape", item.tensor->sizes().vec()},
                                                 {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception&) {
    cannot_write(file, "a tensor name or metadata string is not valid UTF-8", "Rename it.");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

WrittenFile write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata, Sync sync) {
  const auto items = ordered_items(file, tensors);
  const auto header = header_bytes(file, items, metadata);
  OutputFile output(file);
  ChecksummedSink sink([&](const void* data, size_t size) { output.write(data, size); });
  sink.write(header.data(), header.size());
  for (const auto& item : items) {
    const auto plain = item.tensor->detach().cpu().resolve_conj().resolve_neg().contiguous();
    sink.write(plain.const_data_ptr(), size_t(plain.numel()) * plain.element_size());
  }
  output.close(sync);
  return sink.written();
}

}  // namespace gradus
