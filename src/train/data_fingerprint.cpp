#include "train/data_fingerprint.h"

#include <fmt/format.h>
#include <gradus/core/json.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/checksum.h>

namespace gradus {
namespace {

using nlohmann::json;
constexpr int64_t kRows = 32;

void add_bytes(Crc32& sum, const void* data, size_t size) {
  sum.update(&size, sizeof size);
  sum.update(data, size);
}

void add_text(Crc32& sum, std::string_view text) { add_bytes(sum, text.data(), text.size()); }

void add_value(Crc32& sum, const Value& value) {
  if (value.is_null()) return add_text(sum, "null");
  if (value.is_string()) return add_text(sum, value.str());
  if (value.is_strings()) {
    for (const auto& text : value.strings()) add_text(sum, text);
    return;
  }
  // The order of keys says nothing: a row is the same in another one.
  if (value.is_nested()) return add_text(sum, dump_json(nlohmann::json(value.json())));
  const auto tensor = value.to_tensor().detach().to(torch::kCPU).contiguous();
  add_bytes(sum, tensor.sizes().data(), tensor.sizes().size() * sizeof(int64_t));
  add_bytes(sum, tensor.const_data_ptr(), tensor.nbytes());
}

uint32_t row_checksum(const Dataset& data, int64_t index) {
  Crc32 sum;
  for (const auto& [name, value] : data.get(index)) {
    add_text(sum, name);
    add_value(sum, value);
  }
  return sum.value();
}

/// Puts torch's generator back: a row may draw from it.
class KeepRandomState {
 public:
  KeepRandomState() : state_(device::get_cpu_rng_state()) {}
  ~KeepRandomState() { device::set_cpu_rng_state(state_); }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  torch::Tensor state_;
};

json rows_checksum(const Dataset& data) {
  const auto rows = data.size();
  if (rows == 0) return nullptr;
  const KeepRandomState keep;
  try {
    if (row_checksum(data, 0) != row_checksum(data, 0)) return nullptr;
    const auto looked_at = std::min(rows, kRows);
    Crc32 sum;
    for (int64_t i = 0; i < looked_at; ++i) {
      const auto row = row_checksum(data, looked_at == 1 ? 0 : i * (rows - 1) / (looked_at - 1));
      sum.update(&row, sizeof row);
    }
    return checksum_text(sum.value());
  } catch (const std::exception&) {
    return nullptr;  // the loader will say what is wrong with the row
  }
}

}  // namespace

json data_fingerprint(const DatasetRef& data) {
  if (!data) return nullptr;
  const auto rows = data.size();
  return {{"rows", rows ? json(*rows) : json(nullptr)},
          {"columns", data.column_names()},
          {"checksum", data.is_iterable() ? json(nullptr) : rows_checksum(*data.map_style())}};
}

std::string data_difference(const json& now, const json& saved) {
  if (!now.is_object() || !saved.is_object()) return "";
  const auto differs = [&](const char* key) {
    const auto here = now.value(key, json()), there = saved.value(key, json());
    return !here.empty() && !there.empty() && here != there;  // null is empty too
  };
  if (differs("rows"))
    return fmt::format("it has {} rows, before it had {}", dump_json(now["rows"]),
                       dump_json(saved["rows"]));
  if (differs("columns"))
    return fmt::format("its columns are {}, before they were {}", dump_json(now["columns"]),
                       dump_json(saved["columns"]));
  if (differs("checksum")) return "its rows have other values or another order";
  return "";
}

}  // namespace gradus
