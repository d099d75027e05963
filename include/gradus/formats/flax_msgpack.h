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
/// A tree is a value: copying it copies the nodes, while tensors share their storage.
/// Thread-safety: as a `std::vector`.
class FlaxTree {
 public:
  /// Python's `bytes`.
  struct Bytes {
    std::string data;  ///< The bytes.
  };
  /// A numpy scalar: Python reads it as `np.float32(1)`, not as an array.
  struct Scalar {
    torch::Tensor value;  ///< A tensor without dimensions.
  };
  /// Python's `list`.
  struct List {
    std::vector<FlaxTree> items;  ///< The elements in order.
  };
  /// Python's `dict`. Flax stores tuples and lists of a state as dicts with keys "0", "1", …
  struct Dict {
    std::vector<std::pair<std::string, FlaxTree>> items;  ///< The entries in the file's order.
  };
  /// What a node holds; `std::monostate` is None.
  using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::complex<double>,
                             std::string, Bytes, torch::Tensor, Scalar, List, Dict>;

  FlaxTree() = default;                                        ///< None.
  FlaxTree(bool value) : value_(value) {}                      ///< A bool.
  FlaxTree(int value) : value_(int64_t{value}) {}              ///< An int.
  FlaxTree(int64_t value) : value_(value) {}                   ///< An int.
  FlaxTree(uint64_t value) : value_(value) {}                  ///< An int beyond int64.
  FlaxTree(double value) : value_(value) {}                    ///< A float.
  FlaxTree(std::complex<double> value) : value_(value) {}      ///< A complex.
  FlaxTree(const char* value) : value_(std::string(value)) {}  ///< A str.
  FlaxTree(std::string value) : value_(std::move(value)) {}    ///< A str.
  FlaxTree(Bytes value) : value_(std::move(value)) {}          ///< A bytes object.
  FlaxTree(torch::Tensor value) : value_(std::move(value)) {}  ///< An array; not copied.
  FlaxTree(Scalar value) : value_(std::move(value)) {}         ///< A numpy scalar.
  FlaxTree(List value) : value_(std::move(value)) {}           ///< A list.
  FlaxTree(Dict value) : value_(std::move(value)) {}           ///< A dict.

  static FlaxTree dict() { return Dict{}; }  ///< An empty dict.

  /// The node's content.
  const Value& value() const { return value_; }
  /// Whether this is a dict.
  bool is_dict() const { return std::holds_alternative<Dict>(value_); }
  /// Whether this is an array or a numpy scalar.
  bool is_tensor() const {
    return std::holds_alternative<torch::Tensor>(value_) || std::holds_alternative<Scalar>(value_);
  }

  /// The tensor of an array or a numpy scalar. Throws `Error` G-FLAX-4 for another type.
  const torch::Tensor& tensor() const;
  /// The entries of a dict in order. Throws `Error` G-FLAX-4 for another type.
  const std::vector<std::pair<std::string, FlaxTree>>& entries() const;

  /// The value of a dict entry. Throws `Error` G-FLAX-4 with the missing key and those present.
  const FlaxTree& at(std::string_view key) const;
  /// The value of a dict entry, or null when the key is missing.
  const FlaxTree* find(std::string_view key) const;
  /// Sets a dict entry, replacing the value of an existing key. Returns the entry's value.
  FlaxTree& set(std::string key, FlaxTree value);

  /// "dict", "list", "array", "numpy scalar" and so on, for messages.
  std::string type_name() const;

 private:
  Value value_;
};

/// How a tree is written.
struct FlaxOptions {
  /// Larger arrays, in bytes, are split into flat chunks (`flax.serialization.MAX_CHUNK_SIZE`).
  int64_t max_chunk_size = int64_t{1} << 30;
  Sync sync = Sync::no;  ///< Whether the file is flushed to disk.
};

/// Reads a file that Flax or gradus wrote. Arrays become CPU tensors of the same dtype, bfloat16
/// and the float8 types included. Chunked arrays are joined. Integer keys become decimal text.
///
/// Every length is checked against the bytes present before anything is allocated. Throws `Error`,
/// naming file, place and array: G-IO-1 when the file cannot be opened, G-FLAX-1 when it is cut
/// short or not Flax's msgpack, G-FLAX-2 when an array's shape, dtype and bytes do not agree.
FlaxTree read_flax_msgpack(const std::filesystem::path& file);
/// Reads from memory instead; `name` stands for the file in messages.
FlaxTree parse_flax_msgpack(std::string_view bytes, const std::string& name = "Flax msgpack");

/// Writes a tree byte for byte as `flax.serialization.msgpack_serialize` does.
///
/// Arrays are written one after another; one that is not contiguous CPU memory is copied for that
/// time. Throws `Error` G-FLAX-3 for a dtype or layout that cannot be stored, and G-IO-2. A failed
/// write leaves an incomplete file, so write to a temporary name.
WrittenFile write_flax_msgpack(const std::filesystem::path& file, const FlaxTree& tree,
                               const FlaxOptions& options = {});
/// Writes to memory instead and returns the bytes.
std::string flax_msgpack_bytes(const FlaxTree& tree, const FlaxOptions& options = {});

}  // namespace gradus
