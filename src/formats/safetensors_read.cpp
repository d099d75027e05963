#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/formats/safetensors.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/mapped_reads.h"
#include "core/parsed_json.h"
#include "formats/byte_readers.h"
#include "formats/file_storage.h"
#include "formats/safetensors_dtype.h"

namespace gradus {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference
constexpr int kHeaderDepth = 2;               // header → tensor → shape
constexpr size_t kMaxHeaderDimensions = 64;

struct Entry {
  std::string name;
  const SafetensorsDtype* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

[[noreturn]] void fail(const char* id, const MappedFile& file, const std::string& what) {
  throw Error(
      id, ErrorKind::model, "cannot read " + file.path().string() + ": " + what,
      "The file is damaged or was not written by a safetensors library. Fetch or save it again.");
}

std::string_view header_of(const MappedFile& file) {
  if (file.size() < kLengthBytes)
    fail("G-ST-1", file,
         fmt::format("{} bytes, expected at least 8 for the length of the header", file.size()));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeader)
    fail("G-ST-1", file,
         fmt::format("the header claims {} bytes, the format allows at most {}", length,
                     kMaxHeader));
  if (length > file.size() - kLengthBytes)
    fail("G-ST-1", file,
         fmt::format("the header claims {} bytes, only {} follow", length,
                     file.size() - kLengthBytes));
  return {file.data() + kLengthBytes, size_t(length)};
}

/// Looks for what a tree of the header would no longer show: names that come twice and nesting that
/// the format does not have. (The parser's own callback looks at all tensors before after each one,
/// which takes seconds for a header of 20,000.)
class HeaderCheck : public nlohmann::json_sax<json> {
 public:
  explicit HeaderCheck(const MappedFile& file) : file_(file) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (depth_ == 1 && !names_.insert(name).second)
      fail("G-ST-2", file_, "the header names tensor '" + name + "' twice");
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    fail("G-ST-2", file_, std::string("the header is not JSON: ") + error.what());
  }

 private:
  bool open() {
    if (depth_ > kHeaderDepth) fail("G-ST-2", file_, "the header is nested too deep");
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const MappedFile& file_;
  int depth_ = 0;
  std::unordered_set<std::string> names_;
};

/// Parses the header; refuses names that come twice and nesting that the format does not have.
json parse_header(const MappedFile& file, std::string_view text) {
  HeaderCheck check(file);
  json::sax_parse(text, &check);
  try {
    auto header = strict_json(text);
    if (!header.is_object())
      fail("G-ST-2", file,
           std::string("the header is a JSON ") + header.type_name() + ", expected an object");
    return header;
  } catch (const json::exception& error) {
    fail("G-ST-2", file, std::string("the header is not JSON: ") + error.what());
  }
}

SafetensorsMetadata metadata_of(const MappedFile& file, const json& header) {
  SafetensorsMetadata metadata;
  const auto found = header.find("__metadata__");
  if (found == header.end() || found->is_null()) return metadata;
  if (!found->is_object())
    fail("G-ST-2", file,
         std::string("__metadata__ is a JSON ") + found->type_name() + ", expected an object");
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string())
      fail("G-ST-2", file,
           "__metadata__ entry '" + key + "' is a JSON " + value.type_name() +
               ", expected a string");
    metadata.emplace_back(key, value.get<std::string>());
  }
  return metadata;
}

/// One tensor's entry, checked by itself.
class EntryReader {
 public:
  EntryReader(const MappedFile& file, const std::string& name, const json& value,
              uint64_t data_size)
      : file_(file), value_(value), data_size_(data_size) {
    entry_.name = name;
  }

  Entry read() {
    if (!value_.is_object())
      bad(std::string("the entry is a JSON ") + value_.type_name() + ", expected an object");
    read_dtype();
    const auto bytes = read_shape();
    read_range(bytes);
    return std::move(entry_);
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail("G-ST-3", file_, "tensor '" + entry_.name + "': " + what);
  }

  const json& field(const char* name) const {
    const auto found = value_.find(name);
    if (found == value_.end()) bad(std::string("no ") + name);
    return *found;
  }

  void read_dtype() {
    const auto& dtype = field("dtype");
    if (!dtype.is_string())
      bad(std::string("dtype is a JSON ") + dtype.type_name() + ", expected a string");
    entry_.dtype = find_safetensors_dtype(dtype.get_ref<const std::string&>());
    if (entry_.dtype != nullptr) return;
    std::vector<std::string> known;
    for (const auto& row : safetensors_dtypes()) known.emplace_back(row.name);
    bad("dtype " + dtype.dump() + " is not known; known are " + join_or(known));
  }

  /// The bytes that shape and dtype ask for.
  uint64_t read_shape() {
    const auto& shape = field("shape");
    if (!shape.is_array())
      bad(std::string("shape is a JSON ") + shape.type_name() + ", expected an array");
    if (shape.size() > kMaxHeaderDimensions)
      bad(fmt::format("shape has {} dimensions, at most {} are allowed", shape.size(),
                      kMaxHeaderDimensions));
    uint64_t bytes = c10::elementSize(entry_.dtype->type);
    bool empty = false;
    for (const auto& size : shape) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t(INT64_MAX))
        bad("shape " + shape.dump() + " has an entry that is not a whole number of at least 0");
      const auto value = size.get<uint64_t>();
      entry_.shape.push_back(int64_t(value));
      if (value == 0)
        empty = true;
      else if (__builtin_mul_overflow(bytes, value, &bytes) || bytes > uint64_t(INT64_MAX))
        bad("shape " + shape.dump() + " is too large to address");
    }
    return empty ? 0 : bytes;
  }

  void read_range(uint64_t bytes) {
    const auto& offsets = field("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      bad("data_offsets is " + offsets.dump().substr(0, 80) +
          ", expected two whole numbers of at least 0");
    entry_.begin = offsets[0].get<uint64_t>();
    entry_.end = offsets[1].get<uint64_t>();
    if (entry_.begin > entry_.end || entry_.end > data_size_)
      bad(fmt::format("data_offsets [{}, {}] are outside of the {} bytes of data", entry_.begin,
                      entry_.end, data_size_));
    if (entry_.end - entry_.begin != bytes)
      bad(fmt::format("shape [{}] of {} takes {} bytes, data_offsets give {}",
                      fmt::join(entry_.shape, ", "), entry_.dtype->name, bytes,
                      entry_.end - entry_.begin));
  }

  const MappedFile& file_;
  const json& value_;
  uint64_t data_size_;
  Entry entry_;
};

/// Ranges, in order, must follow each other without overlap or hole and reach the end of the file.
void check_ranges(const MappedFile& file, const std::vector<Entry>& entries, uint64_t data_size) {
  uint64_t position = 0;
  for (const auto& entry : entries) {
    if (entry.begin != position)
      fail("G-ST-4", file,
           fmt::format("tensor '{}' begins at byte {} of the data, expected {}: ranges {}",
                       entry.name, entry.begin, position,
                       entry.begin < position ? "overlap" : "leave a hole"));
    position = entry.end;
  }
  if (position != data_size)
    fail("G-ST-4", file,
         fmt::format("the tensors cover {} bytes of data, the file has {}", position, data_size));
}

torch::Tensor view_of(const std::shared_ptr<MappedFile>& file, const Entry& entry,
                      uint64_t data_begin) {
  const auto element = c10::elementSize(entry.dtype->type);
  const auto storage = storage_over(file, size_t(data_begin + entry.begin),
                                    size_t(entry.end - entry.begin), element);
  std::vector<int64_t> strides(entry.shape.size());
  int64_t stride = 1;
  for (size_t i = entry.shape.size(); i-- > 0;) {
    strides[i] = stride;
    if (entry.end > entry.begin) stride *= entry.shape[i];
  }
  return at::empty({0}, at::TensorOptions().dtype(entry.dtype->type))
      .set_(storage, 0, entry.shape, strides);
}

}  // namespace

SafetensorsFile read_safetensors(const std::shared_ptr<MappedFile>& file) {
  const auto text = header_of(*file);
  const uint64_t data_begin = kLengthBytes + text.size();
  const uint64_t data_size = file->size() - data_begin;
  const auto header = parse_header(*file, text);

  SafetensorsFile result;
  result.metadata = metadata_of(*file, header);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__")
      entries.push_back(EntryReader(*file, name, value, data_size).read());
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_ranges(*file, entries, data_size);
  for (const auto& entry : entries)
    result.tensors.emplace_back(entry.name, view_of(file, entry, data_begin));
  return result;
}

SafetensorsFile read_safetensors(const std::filesystem::path& file) {
  return read_mapped([&] { return read_safetensors(map_for_tensors(file)); });
}

}  // namespace gradus
