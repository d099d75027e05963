#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace gradus {

/// Something on the stack of the pickle machine. It lives in the machine's arena, so that a pickle
/// that lets a list contain itself, or nests a million tuples, neither leaks nor recurses when it
/// is thrown away.
struct PickleValue {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    text,
    bytes,
    list,
    tuple,
    dict,  ///< items: key, value, key, value …
    tensor,
    global,       ///< text: "module name"; never called
    storage,      ///< text: its key; type: that of its elements
    array_shell,  ///< a numpy array before BUILD
    array_dtype,  ///< text: numpy's code
  };
  Kind kind = Kind::none;
  c10::ScalarType type = c10::ScalarType::Byte;
  union {
    int64_t integer = 0;
    double real;
  };
  std::string text;
  std::vector<PickleValue*> items;
  at::Tensor tensor;
};

/// Names a kind in messages.
const char* kind_name(PickleValue::Kind kind);

/// Owns the values and limits how much they may take, so that a small file cannot ask for a large
/// memory.
class PickleArena {
 public:
  /// `size` is that of the pickle; `file` is named in messages.
  PickleArena(size_t size, std::string file)
      : file_(std::move(file)), budget_((size_t{256} << 20) + 64 * size) {}

  PickleValue* make(PickleValue::Kind kind);
  /// Counts bytes that are about to be copied or built. Throws G-PT-5 when there are too many for a
  /// pickle of this size.
  void charge(size_t bytes);
  [[noreturn]] void too_large(const std::string& what) const;

 private:
  std::string file_;
  size_t budget_;
  size_t used_ = 0;
  std::deque<PickleValue> values_;
};

}  // namespace gradus
