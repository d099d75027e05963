#pragma once

#include <gradus/formats/checksum.h>
#include <torch/types.h>

#include <complex>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gradus {

/// A tree as Flax serializes it (`flax.serialization.to_bytes`): dictionaries and lists of arrays
/// and plain values.
///
/// Copying is cheap for arrays (tensors share their storage). Thread-safety: as a `std::vector`.
class FlaxTree {
 public:
  struct Bytes {
    std::string data;
  };
  /// A numpy scalar: a tensor of no dimensions that Python reads as `np.float32(1)`, not as an
  /// array.
  struct Scalar {
    torch::Tensor value;
  };
  struct List {
    std::vector<FlaxTree> items;
  };
  /// Entries in the order of the file. Flax turns tuples and lists of a state into dictionaries
  /// with keys "0", "1", …
  struct Dict {
    std::vector<std::pair<std::string, FlaxTree>> items;
  };
  using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::complex<double>,
                             std::string, Bytes, torch::Tensor, Scalar, List, Dict>;

  FlaxTree() = default;  // None
  FlaxTree(bool value) : value_(value) {}
  FlaxTree(int value) : value_(int64_t{value}) {}
  FlaxTree(int64_t value) : value_(value) {}
  FlaxTree(uint64_t value) : value_(value) {}
  FlaxTree(double value) : value_(value) {}
  FlaxTree(std::complex<double> value) : value_(value) {}
  FlaxTree(const char* value) : value_(std::string(value)) {}
  FlaxTree(std::string value) : value_(std::move(value)) {}
  FlaxTree(Bytes value) : value_(std::move(value)) {}
  FlaxTree(torch::Tensor value) : value_(std::move(value)) {}
  FlaxTree(Scalar value) : value_(std::move(value)) {}
  FlaxTree(List value) : value_(std::move(value)) {}
  FlaxTree(Dict value) : value_(std::move(value)) {}

  static FlaxTree dict() { return Dict{}; }

  const Value& value() const { return value_; }
  bool is_dict() const { return std::holds_alternative<Dict>(value_); }
  bool is_tensor() const {
    return std::holds_alternative<torch::Tensor>(value_) || std::holds_alternative<Scalar>(value_);
  }

  /// Typed access. Throws `Error` G-FLAX-4 that names the type found.
  const torch::Tensor& tensor() const;  ///< of an array or a numpy scalar
  const std::vector<std::pair<std::string, FlaxTree>>& entries() const;

  /// Dict access. `at` throws G-FLAX-4 with the missing key and those present; `find` gives null.
  const FlaxTree& at(std::string_view key) const;
  const FlaxTree* find(std::string_view key) const;
  /// Sets a dict entry, replacing one of that key; gives the entry.
  FlaxTree& set(std::string key, FlaxTree value);

  /// "dict", "list", "array", "numpy scalar" …, for messages.
  std::string type_name() const;

 private:
  Value value_;
};

struct FlaxOptions {
  /// Arrays of more bytes than this are cut into flat pieces (`flax.serialization.MAX_CHUNK_SIZE`).
  int64_t max_chunk_size = int64_t{1} << 30;
  Sync sync = Sync::no;
};

/// Reads a file that Flax or gradus wrote. Arrays become CPU tensors of the same dtype (bfloat16
/// and the float8 types included), chunked ones are put together again; integer keys become their
/// decimal text.
///
/// Every length is compared with the bytes that are there before anything is allocated. Throws,
/// naming file, place and array: G-IO-1 cannot be opened, G-FLAX-1 cut short or no msgpack of
/// Flax's kind, G-FLAX-2 an array whose shape, dtype and bytes do not fit together.
FlaxTree read_flax_msgpack(const std::filesystem::path& file);
/// The same from memory; `name` stands for the file in messages.
FlaxTree parse_flax_msgpack(std::string_view bytes, const std::string& name = "Flax msgpack");

/// Writes a tree byte for byte as `flax.serialization.msgpack_serialize` does, array after array:
/// the extra memory is one array where it is not contiguous CPU memory already. Throws G-FLAX-3 (a
/// dtype or layout that cannot be stored), G-IO-2; a failed write leaves an incomplete file behind:
/// write under a temporary name.
WrittenFile write_flax_msgpack(const std::filesystem::path& file, const FlaxTree& tree,
                               const FlaxOptions& options = {});
std::string flax_msgpack_bytes(const FlaxTree& tree, const FlaxOptions& options = {});

}  // namespace gradus
