#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// Something on the stack of the pickle machine. It lives in the machine's arena, so that a pickle
/// that lets a list contain itself, or nests a million tuples, neither leaks nor recurses when it
/// is thrown away. A pickle may hold a number in every other byte, so numbers take as little as
/// they can.
class PickleValue {
 public:
  enum class Kind : uint8_t {
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

  /// What values other than numbers hold; made when it is first asked for.
  std::string& text() { return body().text; }
  std::vector<PickleValue*>& items() { return body().items; }
  const std::vector<PickleValue*>& items() const {
    static const std::vector<PickleValue*> none;
    return body_ == nullptr ? none : body_->items;
  }
  at::Tensor& tensor() { return body().tensor; }

 private:
  struct Body {
    std::string text;
    std::vector<PickleValue*> items;
    at::Tensor tensor;
  };
  Body& body() {
    if (body_ == nullptr) body_ = std::make_unique<Body>();
    return *body_;
  }
  std::unique_ptr<Body> body_;
};

/// Names a kind in messages.
const char* kind_name(PickleValue::Kind kind);

/// Owns the values and limits how much they may take, so that a small file cannot ask for a large
/// memory: 128 MiB and 4 times what was read of the pickle, times `limit_factor()`.
class PickleArena {
 public:
  /// `file` is named in messages.
  explicit PickleArena(std::string file) : file_(std::move(file)) {}

  /// So many bytes of the pickle were read by now.
  void set_read(size_t bytes) { read_ = bytes; }
  PickleValue* make(PickleValue::Kind kind);
  /// Counts bytes that are about to be copied or built. Throws G-PT-5 when there are too many for
  /// what was read.
  void charge(size_t bytes) {
    used_ += bytes;
    if (used_ > kFreeBytes && used_ > budget()) throw_over_budget();
  }
  [[noreturn]] void too_large(const std::string& what) const;

 private:
  static constexpr size_t kFreeBytes = size_t{128} << 20;
  size_t budget() const;
  [[noreturn]] void throw_over_budget() const;

  std::string file_;
  size_t read_ = 0;
  size_t used_ = 0;
  std::deque<PickleValue> values_;
};

}  // namespace gradus
