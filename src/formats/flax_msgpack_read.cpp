#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/formats/flax_msgpack.h>

#include <bit>
#include <cstring>
#include <set>

#include "core/mapped_reads.h"
#include "formats/file_storage.h"
#include "formats/flax_dtype.h"

namespace gradus {
namespace {

constexpr int kDeepestMsgpack = 200;
constexpr size_t kMaxNumpyDimensions = 64;  // numpy's own limit

/// Reads values from front to back. A length is believed only as far as there are bytes for it.
class Reader {
 public:
  /// `offset`: where `bytes` begin in the file, for messages.
  Reader(std::string_view bytes, const std::string& name, size_t offset = 0, std::string path = "")
      : bytes_(bytes), name_(name), offset_(offset), path_(std::move(path)) {}

  FlaxTree whole() {
    auto tree = value(0);
    if (at_ != bytes_.size())
      damaged(fmt::format("{} bytes follow the end of the tree", bytes_.size() - at_));
    return tree;
  }

 private:
  struct Array {
    std::vector<int64_t> shape;
    at::ScalarType type;
    std::string_view data;
  };

  [[noreturn]] void damaged(const std::string& what) const {
    throw Error("G-FLAX-1", ErrorKind::model,
                fmt::format("cannot read {}: at byte {}{}, {}", name_, offset_ + at_,
                            path_.empty() ? "" : " ('" + path_ + "')", what),
                "The file is cut short or damaged, or was not written by flax.serialization. Fetch "
                "or write it again.");
  }
  [[noreturn]] void bad_array(const std::string& what) const {
    throw Error(
        "G-FLAX-2", ErrorKind::model,
        fmt::format("cannot read {}: array '{}' {}", name_, path_, what),
        "The file is damaged or was not written by flax.serialization. Fetch or write it again.");
  }

  uint64_t left() const { return bytes_.size() - at_; }

  std::string_view take(uint64_t size, const char* what) {
    if (size > left()) damaged(fmt::format("{} needs {} bytes, {} are left", what, size, left()));
    const auto piece = bytes_.substr(at_, size_t(size));
    at_ += size_t(size);
    return piece;
  }

  uint64_t number(size_t width) {
    uint64_t value = 0;
    for (const char byte : take(width, "a number")) value = value << 8 | uint8_t(byte);
    return value;
  }

  FlaxTree value(int depth) {
    const auto tag = uint8_t(take(1, "a value")[0]);
    if (tag < 0x80) return int64_t{tag};
    if (tag < 0x90) return dict(tag & 0x0F, depth);
    if (tag < 0xA0) return list(tag & 0x0F, depth);
    if (tag < 0xC0) return std::string(take(tag & 0x1F, "a text"));
    if (tag >= 0xE0) return int64_t{int8_t(tag)};
    switch (tag) {
      case 0xC0: return {};
      case 0xC2: return false;
      case 0xC3: return true;
      case 0xC4:
      case 0xC5:
      case 0xC6:
        return FlaxTree::Bytes{
            std::string(take(number(size_t{1} << (tag - 0xC4)), "a byte string"))};
      case 0xC7:
      case 0xC8:
      case 0xC9: return extension(number(size_t{1} << (tag - 0xC7)));
      case 0xCA: return double{std::bit_cast<float>(uint32_t(number(4)))};
      case 0xCB: return std::bit_cast<double>(number(8));
      case 0xCC:
      case 0xCD:
      case 0xCE: return int64_t(number(size_t{1} << (tag - 0xCC)));
      case 0xCF: return unsigned_value(number(8));
      case 0xD0: return int64_t{int8_t(number(1))};
      case 0xD1: return int64_t{int16_t(number(2))};
      case 0xD2: return int64_t{int32_t(number(4))};
      case 0xD3: return int64_t(number(8));
      case 0xD4:
      case 0xD5:
      case 0xD6:
      case 0xD7:
      case 0xD8: return extension(uint64_t{1} << (tag - 0xD4));
      case 0xD9:
      case 0xDA:
      case 0xDB: return std::string(take(number(size_t{1} << (tag - 0xD9)), "a text"));
      case 0xDC:
      case 0xDD: return list(number(tag == 0xDC ? 2 : 4), depth);
      case 0xDE:
      case 0xDF: return dict(number(tag == 0xDE ? 2 : 4), depth);
      default: damaged(fmt::format("the byte {:#04x} begins no value", tag));
    }
  }

  static FlaxTree unsigned_value(uint64_t value) {
    return value > uint64_t(INT64_MAX) ? FlaxTree(value) : FlaxTree(int64_t(value));
  }

  void check_container(uint64_t bytes_needed, const char* what, uint64_t count, int depth) const {
    if (depth >= kDeepestMsgpack)
      damaged(fmt::format("values are nested more than {} deep", kDeepestMsgpack));
    if (bytes_needed > left())
      damaged(fmt::format("{} of {} entries needs {} bytes or more, {} are left", what, count,
                          bytes_needed, left()));
  }

  FlaxTree list(uint64_t count, int depth) {
    check_container(count, "a list", count, depth);
    FlaxTree::List result;
    for (uint64_t i = 0; i < count; ++i) result.items.push_back(value(depth + 1));
    return result;
  }

  std::string key(int depth) {
    const auto key = value(depth + 1);
    if (const auto* text = std::get_if<std::string>(&key.value())) return *text;
    if (const auto* index = std::get_if<int64_t>(&key.value())) return std::to_string(*index);
    damaged("a key is a " + key.type_name() + ", expected text");
  }

  FlaxTree dict(uint64_t count, int depth) {
    check_container(2 * count, "a dictionary", count, depth);
    FlaxTree::Dict result;
    std::set<std::string, std::less<>> names;
    for (uint64_t i = 0; i < count; ++i) {
      auto name = key(depth);
      if (!names.insert(name).second) damaged("the key '" + name + "' appears twice");
      const auto parent = path_.size();
      path_ += (path_.empty() ? "" : "/") + name;
      result.items.emplace_back(std::move(name), value(depth + 1));
      path_.resize(parent);
    }
    return names.contains(kFlaxChunked) ? FlaxTree(joined(std::move(result)))
                                        : FlaxTree(std::move(result));
  }

  FlaxTree extension(uint64_t size) {
    const auto code = FlaxExtension(int8_t(number(1)));
    const auto begin = offset_ + at_;
    Reader payload(take(size, "an array"), name_, begin, path_);
    switch (code) {
      case FlaxExtension::array: return tensor(payload.array());
      case FlaxExtension::numpy_scalar: return FlaxTree::Scalar{tensor(payload.array())};
      case FlaxExtension::complex: return payload.complex();
    }
    damaged(fmt::format(
        "the extension type {} is none of Flax's (1 array, 2 complex, 3 numpy scalar)", int(code)));
  }

  /// The payload of an array: [shape, dtype name, bytes].
  Array array() {
    if (bytes_.empty() || uint8_t(bytes_[0]) != 0x93) bad_array("is not [shape, dtype, bytes]");
    at_ = 1;
    const auto shape = value(kDeepestMsgpack - 1), dtype = value(kDeepestMsgpack);
    const auto* dims = std::get_if<FlaxTree::List>(&shape.value());
    const auto* name = std::get_if<std::string>(&dtype.value());
    if (dims == nullptr || name == nullptr) bad_array("is not [shape, dtype, bytes]");
    Array result{.shape = {}, .type = dtype_of(*name), .data = raw_bytes()};
    for (const auto& dim : dims->items) {
      const auto* size = std::get_if<int64_t>(&dim.value());
      if (size == nullptr) bad_array("has a shape with a " + dim.type_name() + " in it");
      result.shape.push_back(*size);
    }
    if (at_ != bytes_.size()) bad_array("has bytes left after its data");
    return result;
  }

  /// A byte string without a copy.
  std::string_view raw_bytes() {
    const auto tag = uint8_t(take(1, "a value")[0]);
    if (tag < 0xC4 || tag > 0xC6) bad_array("is not [shape, dtype, bytes]");
    return take(number(size_t{1} << (tag - 0xC4)), "the data of an array");
  }

  at::ScalarType dtype_of(const std::string& name) const {
    for (const auto& dtype : kFlaxDtypes)
      if (dtype.name == name) return dtype.type;
    std::string known;
    for (const auto& dtype : kFlaxDtypes)
      known += (known.empty() ? "" : ", ") + std::string(dtype.name);
    bad_array("has dtype '" + name.substr(0, 40) +
              "', which torch does not have; expected one of " + known);
  }

  /// Elements of a shape; refuses one that no memory could hold, also where a size is 0.
  int64_t elements(const std::vector<int64_t>& shape) const {
    if (shape.size() > kMaxNumpyDimensions)
      bad_array(fmt::format("has {} dimensions, more than {}", shape.size(), kMaxNumpyDimensions));
    int64_t extent = 1;
    bool empty = false;
    for (const auto size : shape) {
      if (size < 0) bad_array(fmt::format("has a size of {} in its shape", size));
      if (size == 0)
        empty = true;
      else if (__builtin_mul_overflow(extent, size, &extent) || extent > INT64_MAX / 16)
        bad_array(fmt::format("has the shape [{}], more than any memory", fmt::join(shape, ", ")));
    }
    return empty ? 0 : extent;
  }

  torch::Tensor tensor(const Array& array) const {
    const auto needed = uint64_t(elements(array.shape)) * c10::elementSize(array.type);
    if (needed != array.data.size())
      bad_array(fmt::format("of shape [{}] and dtype {} needs {} bytes, it has {}",
                            fmt::join(array.shape, ", "), c10::toString(array.type), needed,
                            array.data.size()));
    auto result = at::empty(array.shape, array.type);
    if (needed > 0) std::memcpy(result.mutable_data_ptr(), array.data.data(), needed);
    return result;
  }

  FlaxTree complex() {
    const auto pair = whole();
    const auto* parts = std::get_if<FlaxTree::List>(&pair.value());
    const double* real =
        parts && parts->items.size() == 2 ? std::get_if<double>(&parts->items[0].value()) : nullptr;
    const double* imaginary = real ? std::get_if<double>(&parts->items[1].value()) : nullptr;
    if (imaginary == nullptr) damaged("a complex number is not [real, imaginary]");
    return std::complex<double>(*real, *imaginary);
  }

  /// The values of {"0": …, "1": …} in that order.
  std::vector<const FlaxTree*> indexed(const FlaxTree& chunked, const char* part) const {
    const auto* dict = chunked.find(part);
    if (dict == nullptr || !dict->is_dict())
      bad_array(fmt::format("is in chunks but has no '{}'", part));
    std::vector<const FlaxTree*> values(dict->entries().size());
    for (const auto& [key, value] : dict->entries()) {
      size_t index = values.size();
      if (!key.empty() && key.size() < 10 &&
          key.find_first_not_of("0123456789") == std::string::npos)
        index = std::stoul(key);
      if (index >= values.size() || values[index] != nullptr)
        bad_array(fmt::format("is in chunks and '{}' has the key '{}', expected 0 to {}", part,
                              key.substr(0, 40), values.size() - 1));
      values[index] = &value;
    }
    return values;
  }

  /// An array from its chunks, which are flat pieces of it.
  torch::Tensor joined(FlaxTree chunked) const {
    std::vector<int64_t> shape;
    for (const auto* size : indexed(chunked, "shape")) {
      if (!std::holds_alternative<int64_t>(size->value()))
        bad_array("is in chunks and its shape has a " + size->type_name() + " in it");
      shape.push_back(std::get<int64_t>(size->value()));
    }
    const auto chunks = indexed(chunked, "chunks");
    int64_t total = 0;
    for (const auto* chunk : chunks) {
      if (!chunk->is_tensor() || chunk->tensor().dim() != 1 ||
          chunk->tensor().scalar_type() != chunks[0]->tensor().scalar_type())
        bad_array("is in chunks that are not flat arrays of one dtype");
      total += chunk->tensor().numel();
    }
    if (chunks.empty() || elements(shape) != total)
      bad_array(fmt::format("of shape [{}] is in {} chunks with {} elements together",
                            fmt::join(shape, ", "), chunks.size(), total));
    auto result = at::empty(shape, chunks[0]->tensor().scalar_type());
    auto* out = static_cast<char*>(result.mutable_data_ptr());
    for (const auto* chunk : chunks) {
      const auto& piece = chunk->tensor();
      if (piece.nbytes() > 0) std::memcpy(out, piece.const_data_ptr(), piece.nbytes());
      out += piece.nbytes();
    }
    return result;
  }

  std::string_view bytes_;
  const std::string& name_;
  size_t offset_;
  std::string path_;  // keys down to the value being read
  size_t at_ = 0;
};

}  // namespace

FlaxTree parse_flax_msgpack(std::string_view bytes, const std::string& name) {
  return Reader(bytes, name).whole();
}

FlaxTree read_flax_msgpack(const std::filesystem::path& file) {
  const auto mapped = map_for_tensors(file);
  return read_mapped([&] {
    return parse_flax_msgpack({mapped->data(), mapped->size()}, mapped->path().string());
  });
}

}  // namespace gradus
