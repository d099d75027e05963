#include <gradus/core/error.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "formats/pickle_reader.h"
#include "formats/torch_dtype.h"

namespace gradus {
namespace {

using Kind = PickleValue::Kind;
constexpr size_t kMaxPickledDimensions = 64;
constexpr size_t kTensorCost = 384;   // of a tensor without its bytes
constexpr size_t kStorageCost = 256;  // and of a storage

/// Text that stands for bytes, one character of at most U+00FF each; nothing when it is not that.
std::optional<std::string> from_latin1(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += char(lead);
    } else {
      if ((lead & 0xFC) != 0xC0 || i + 1 >= text.size()) return std::nullopt;
      bytes += char(((lead & 3) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3F));
    }
  }
  return bytes;
}

/// Whether the elements of a tensor all lie in its storage; numbers may be hostile.
bool fits(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, uint64_t offset,
          uint64_t elements, size_t element_size) {
  uint64_t last = offset;
  uint64_t bytes = element_size;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) return false;
    if (sizes[i] == 0) {
      empty = true;
      continue;
    }
    uint64_t reach = 0;
    if (__builtin_mul_overflow(uint64_t(sizes[i] - 1), uint64_t(strides[i]), &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return false;
    if (__builtin_mul_overflow(bytes, uint64_t(sizes[i]), &bytes) || bytes > uint64_t(INT64_MAX))
      return false;
  }
  return empty ? offset <= elements : last < elements;
}

}  // namespace

void PickleErrors::refused(const std::string& name) const {
  throw Error("G-PT-2", ErrorKind::checkpoint,
              "cannot read " + file_ + ": it tries to import " + name + ", which is not allowed",
              "gradus reads tensors and plain values only and executes nothing. If you trust the "
              "file, load it in Python and save\n"
              "  its state dict with torch.save or as safetensors.");
}

void PickleErrors::malformed(const std::string& what) const {
  throw Error("G-PT-3", ErrorKind::checkpoint, "cannot read " + file_ + ": " + what,
              "The file is damaged, or holds something other than tensors and plain values.");
}

void PickleErrors::geometry(const std::string& what) const {
  throw Error("G-PT-4", ErrorKind::checkpoint, "cannot read " + file_ + ": " + what,
              "The file is damaged. Fetch or save it again.");
}

PickleValue* PickleErrors::need(PickleValue* value, Kind kind, const char* where) const {
  if (value->kind != kind)
    malformed(fmt::format("{}: expected a {}, received a {}", where, kind_name(kind),
                          kind_name(value->kind)));
  return value;
}

const std::map<std::string_view, PickleObjects::Builder>& PickleObjects::builders() {
  static const std::map<std::string_view, Builder> kBuilders = {
      {"collections.OrderedDict", &PickleObjects::ordered_dict},
      {"torch._utils._rebuild_tensor", &PickleObjects::tensor_v2},
      {"torch._utils._rebuild_tensor_v2", &PickleObjects::tensor_v2},
      {"torch._utils._rebuild_tensor_v3", &PickleObjects::tensor_v3},
      {"torch._utils._rebuild_parameter", &PickleObjects::parameter},
      {"torch._utils._rebuild_parameter_with_state", &PickleObjects::parameter},
      {"torch.Size", &PickleObjects::size},
      {"torch.device", &PickleObjects::device},
      {"builtins.set", &PickleObjects::set},
      {"builtins.bytearray", &PickleObjects::encode},
      {"_codecs.encode", &PickleObjects::encode},
      {"numpy.dtype", &PickleObjects::array_dtype},
      {"numpy.core.multiarray._reconstruct", &PickleObjects::array},
      {"numpy._core.multiarray._reconstruct", &PickleObjects::array},
      {"numpy.core.multiarray.scalar", &PickleObjects::array_scalar},
      {"numpy._core.multiarray.scalar", &PickleObjects::array_scalar},
  };
  return kBuilders;
}

PickleValue* PickleObjects::global(std::string module, const std::string& name) {
  if (module == "__builtin__") module = "builtins";  // Python 2's name, which protocol 2 keeps
  const auto full = module + "." + name;
  if (module == "torch" && torch_dtype_by_name(name) != nullptr) {  // a dtype is plain text to us
    auto* value = arena_.make(Kind::text);
    value->text() = full;
    return value;
  }
  const bool storage = (module == "torch" && torch_dtype_by_storage(name) != nullptr) ||
                       full == "torch.storage.UntypedStorage";
  if (!storage && full != "numpy.ndarray" && !builders().contains(full)) errors_.refused(full);
  auto* value = arena_.make(Kind::global);
  value->text() = full;
  return value;
}

PickleValue* PickleObjects::reduce(PickleValue* function, PickleValue* arguments) {
  errors_.need(function, Kind::global, "a call");
  errors_.need(arguments, Kind::tuple, "arguments of a call");
  const auto found = builders().find(function->text());
  if (found == builders().end()) errors_.refused(function->text() + " as a function");
  return (this->*found->second)(arguments->items());
}

const std::vector<PickleValue*>& PickleObjects::at_least(const std::vector<PickleValue*>& arguments,
                                                         size_t count, const char* what) const {
  if (arguments.size() < count)
    errors_.malformed(fmt::format("{}: expected at least {} arguments, received {}", what, count,
                                  arguments.size()));
  return arguments;
}

std::vector<int64_t> PickleObjects::sizes(PickleValue* value) const {
  errors_.need(value, Kind::tuple, "sizes of a tensor");
  if (value->items().size() > kMaxPickledDimensions)
    errors_.geometry(fmt::format("a tensor of {} dimensions, at most {} are allowed",
                                 value->items().size(), kMaxPickledDimensions));
  std::vector<int64_t> numbers;
  for (auto* item : value->items())
    numbers.push_back(errors_.need(item, Kind::integer, "size of a tensor")->integer);
  return numbers;
}

PickleValue* PickleObjects::storage(PickleValue* id) {
  const auto& parts = at_least(errors_.need(id, Kind::tuple, "a storage")->items(), 5, "a storage");
  if (errors_.need(parts[0], Kind::text, "a storage")->text() != "storage")
    errors_.malformed("a persistent id that is not a storage");
  const auto& name = errors_.need(parts[1], Kind::global, "type of a storage")->text();
  const auto& key = errors_.need(parts[2], Kind::text, "key of a storage")->text();
  const auto elements = errors_.need(parts[4], Kind::integer, "length of a storage")->integer;
  if (parts.size() > 5 && parts[5]->kind != Kind::none)
    errors_.malformed("a storage that is part of another, as torch wrote before version 0.4");
  auto* value = arena_.make(Kind::storage);
  if (name != "torch.storage.UntypedStorage") {
    const auto* dtype = name.starts_with("torch.")
                            ? torch_dtype_by_storage(std::string_view(name).substr(6))
                            : nullptr;
    if (dtype == nullptr) errors_.refused(name + " as a storage");
    value->type = dtype->type;
  }
  value->text() = key;
  arena_.charge(kStorageCost + key.size());
  auto [found, fresh] = opened_.try_emplace(key);
  if (fresh) found->second = storages_(key, elements, value->type);
  const auto size = found->second.nbytes();
  if (elements < 0 || uint64_t(elements) > size / c10::elementSize(value->type))
    errors_.geometry(fmt::format("storage '{}' claims {} elements of {}, it has {} bytes", key,
                                 elements, c10::toString(value->type), size));
  return value;
}

PickleValue* PickleObjects::tensor(const std::vector<PickleValue*>& arguments,
                                   c10::ScalarType type) {
  const auto& key = errors_.need(arguments[0], Kind::storage, "storage of a tensor")->text();
  const auto offset = errors_.need(arguments[1], Kind::integer, "offset of a tensor")->integer;
  const auto shape = sizes(arguments[2]);
  const auto strides = sizes(arguments[3]);
  const auto& storage = opened_.at(key);
  const auto elements = storage.nbytes() / c10::elementSize(type);
  if (offset < 0 || shape.size() != strides.size() ||
      !fits(shape, strides, uint64_t(offset), elements, c10::elementSize(type)))
    errors_.geometry(
        fmt::format("a tensor of shape [{}], strides [{}] and offset {} does not fit storage '{}' "
                    "of {} elements",
                    fmt::join(shape, ", "), fmt::join(strides, ", "), offset, key, elements));
  auto* value = arena_.make(Kind::tensor);
  arena_.charge(kTensorCost);
  value->tensor() =
      at::empty({0}, at::TensorOptions().dtype(type)).set_(storage, offset, shape, strides);
  return value;
}

PickleValue* PickleObjects::tensor_v2(const std::vector<PickleValue*>& arguments) {
  at_least(arguments, 4, "a tensor");
  auto* value =
      tensor(arguments, errors_.need(arguments[0], Kind::storage, "storage of a tensor")->type);
  if (arguments.size() > 6 && arguments[6]->kind == Kind::dict && !arguments[6]->items().empty())
    errors_.malformed(
        "a tensor with lazy conjugation or negation; call resolve_conj() and resolve_neg() before "
        "saving");
  return value;
}

PickleValue* PickleObjects::tensor_v3(const std::vector<PickleValue*>& arguments) {
  at_least(arguments, 7, "a tensor");
  const auto& name = errors_.need(arguments[6], Kind::text, "dtype of a tensor")->text();
  const auto* dtype =
      name.starts_with("torch.") ? torch_dtype_by_name(std::string_view(name).substr(6)) : nullptr;
  if (dtype == nullptr) errors_.malformed("a tensor of unknown dtype " + name);
  return tensor(arguments, dtype->type);
}

PickleValue* PickleObjects::parameter(const std::vector<PickleValue*>& arguments) {
  return errors_.need(at_least(arguments, 1, "a parameter")[0], Kind::tensor,
                      "data of a parameter");
}

PickleValue* PickleObjects::ordered_dict(const std::vector<PickleValue*>& arguments) {
  auto* value = arena_.make(Kind::dict);
  if (arguments.empty()) return value;
  for (auto* pair : errors_.need(arguments[0], Kind::list, "pairs of an OrderedDict")->items()) {
    if ((pair->kind != Kind::list && pair->kind != Kind::tuple) || pair->items().size() != 2)
      errors_.malformed("an OrderedDict whose items are not pairs");
    arena_.charge(4 * sizeof(void*));
    value->items().insert(value->items().end(), pair->items().begin(), pair->items().end());
  }
  return value;
}

PickleValue* PickleObjects::size(const std::vector<PickleValue*>& arguments) {
  return errors_.need(at_least(arguments, 1, "torch.Size")[0], Kind::tuple, "torch.Size");
}

PickleValue* PickleObjects::device(const std::vector<PickleValue*>& arguments) {
  auto* value = arena_.make(Kind::text);
  const auto& type =
      errors_.need(at_least(arguments, 1, "torch.device")[0], Kind::text, "torch.device")->text();
  arena_.charge(type.size());
  value->text() = type;
  if (arguments.size() > 1)
    value->text() +=
        ":" + std::to_string(errors_.need(arguments[1], Kind::integer, "torch.device")->integer);
  return value;
}

PickleValue* PickleObjects::set(const std::vector<PickleValue*>& arguments) {
  auto* value = arena_.make(Kind::list);
  if (arguments.empty()) return value;
  const auto& items = errors_.need(arguments[0], Kind::list, "items of a set")->items();
  arena_.charge(items.size() * sizeof(void*));
  value->items() = items;
  return value;
}

PickleValue* PickleObjects::encode(const std::vector<PickleValue*>& arguments) {
  auto* value = arena_.make(Kind::bytes);
  if (arguments.empty()) return value;
  const auto& text = errors_.need(arguments[0], Kind::text, "text of bytes")->text();
  const auto& coding =
      errors_.need(at_least(arguments, 2, "bytes")[1], Kind::text, "coding of bytes")->text();
  arena_.charge(text.size());
  auto bytes = from_latin1(text);
  if ((coding != "latin1" && coding != "latin-1") || !bytes)
    errors_.malformed("bytes that are not in latin-1");
  value->text() = std::move(*bytes);
  return value;
}

PickleValue* PickleObjects::array(const std::vector<PickleValue*>&) {
  return arena_.make(Kind::array_shell);
}

PickleValue* PickleObjects::array_dtype(const std::vector<PickleValue*>& arguments) {
  const auto& code =
      errors_.need(at_least(arguments, 1, "a numpy dtype")[0], Kind::text, "a numpy dtype")->text();
  if (!numpy_dtype(code))
    errors_.malformed("a numpy array of dtype '" + code.substr(0, 32) +
                      "', which is not supported");
  auto* value = arena_.make(Kind::array_dtype);
  value->text() = code;
  return value;
}

PickleValue* PickleObjects::array_scalar(const std::vector<PickleValue*>& arguments) {
  at_least(arguments, 2, "a numpy number");
  const auto type = *numpy_dtype(
      errors_.need(arguments[0], Kind::array_dtype, "dtype of a numpy number")->text());
  const auto& bytes = errors_.need(arguments[1], Kind::bytes, "a numpy number")->text();
  if (bytes.size() != c10::elementSize(type))
    errors_.geometry(fmt::format("a numpy number of {} bytes, expected {}", bytes.size(),
                                 c10::elementSize(type)));
  const auto element = at::empty({}, at::TensorOptions().dtype(type));
  std::memcpy(element.mutable_data_ptr(), bytes.data(), bytes.size());
  const auto number = element.item();
  auto* value = arena_.make(number.isBoolean()         ? Kind::boolean
                            : number.isIntegral(false) ? Kind::integer
                                                       : Kind::real);
  if (number.isComplex()) errors_.malformed("a complex number, which is not supported");
  if (value->kind == Kind::real)
    value->real = number.toDouble();
  else if (type == c10::ScalarType::UInt64 && bytes.back() < 0)
    errors_.malformed("a numpy number above 2^63 - 1");
  else
    value->integer = number.toLong();
  return value;
}

void PickleObjects::build(PickleValue* object, PickleValue* state) {
  if (object->kind == Kind::array_shell) return build_array(object, state);
  if (object->kind == Kind::dict)
    return;  // attributes of an OrderedDict, such as a state dict's _metadata
  if (object->kind != Kind::array_dtype)
    errors_.malformed(fmt::format("state for a {}", kind_name(object->kind)));
  const auto& parts = at_least(errors_.need(state, Kind::tuple, "state of a numpy dtype")->items(),
                               2, "state of a numpy dtype");
  const auto& order = errors_.need(parts[1], Kind::text, "byte order of a numpy dtype")->text();
  if (order != "<" && order != "|")
    errors_.malformed("a numpy array in byte order '" + order.substr(0, 8) + "', expected '<'");
}

void PickleObjects::build_array(PickleValue* object, PickleValue* state) {
  const auto& parts = at_least(errors_.need(state, Kind::tuple, "state of a numpy array")->items(),
                               5, "state of a numpy array");
  const auto shape = sizes(parts[1]);
  const auto type =
      *numpy_dtype(errors_.need(parts[2], Kind::array_dtype, "dtype of a numpy array")->text());
  if (errors_.need(parts[3], Kind::boolean, "order of a numpy array")->integer != 0)
    errors_.malformed("a numpy array in Fortran order");
  const auto& bytes = errors_.need(parts[4], Kind::bytes, "data of a numpy array")->text();
  uint64_t expected = c10::elementSize(type);
  bool valid = true;
  for (const auto size : shape)
    valid = valid && size >= 0 && !__builtin_mul_overflow(expected, uint64_t(size), &expected);
  if (!valid || expected != bytes.size())
    errors_.geometry(fmt::format("a numpy array of shape [{}] and {} with {} bytes of data",
                                 fmt::join(shape, ", "), c10::toString(type), bytes.size()));
  arena_.charge(bytes.size());
  object->tensor() = at::empty(shape, at::TensorOptions().dtype(type));
  if (!bytes.empty()) std::memcpy(object->tensor().mutable_data_ptr(), bytes.data(), bytes.size());
  object->kind = Kind::tensor;
}

}  // namespace gradus
