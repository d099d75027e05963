#pragma once

#include <gradus/core/state_tree.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/pickle_value.h"

namespace gradus {

/// Gives the storage of a key, of which `elements` of `type` are claimed; throws when there is
/// none.
using StorageSource =
    std::function<at::Storage(const std::string& key, int64_t elements, c10::ScalarType type)>;

/// Says what is wrong and where, as `Error`.
class PickleErrors {
 public:
  explicit PickleErrors(std::string file) : file_(std::move(file)) {}
  [[noreturn]] void refused(const std::string& name) const;    // G-PT-2
  [[noreturn]] void malformed(const std::string& what) const;  // G-PT-3
  [[noreturn]] void geometry(const std::string& what) const;   // G-PT-4
  /// The value as one of `kind`, or `malformed`.
  PickleValue* need(PickleValue* value, PickleValue::Kind kind, const char* where) const;

 private:
  std::string file_;
};

/// What the few allowed classes and functions of a torch file would have built.
class PickleObjects {
 public:
  PickleObjects(PickleArena& arena, const PickleErrors& errors, StorageSource storages)
      : arena_(arena), errors_(errors), storages_(std::move(storages)) {}

  PickleValue* global(std::string module, const std::string& name);
  PickleValue* reduce(PickleValue* function, PickleValue* arguments);
  void build(PickleValue* object, PickleValue* state);
  PickleValue* storage(PickleValue* id);

 private:
  using Builder = PickleValue* (PickleObjects::*)(const std::vector<PickleValue*>& arguments);

  static const std::map<std::string_view, Builder>& builders();
  const std::vector<PickleValue*>& at_least(const std::vector<PickleValue*>& arguments,
                                            size_t count, const char* what) const;
  std::vector<int64_t> sizes(PickleValue* value) const;
  PickleValue* tensor(const std::vector<PickleValue*>& arguments, c10::ScalarType type);

  PickleValue* ordered_dict(const std::vector<PickleValue*>& arguments);
  PickleValue* tensor_v2(const std::vector<PickleValue*>& arguments);
  PickleValue* tensor_v3(const std::vector<PickleValue*>& arguments);
  PickleValue* parameter(const std::vector<PickleValue*>& arguments);
  PickleValue* size(const std::vector<PickleValue*>& arguments);
  PickleValue* device(const std::vector<PickleValue*>& arguments);
  PickleValue* set(const std::vector<PickleValue*>& arguments);
  PickleValue* encode(const std::vector<PickleValue*>& arguments);
  PickleValue* array(const std::vector<PickleValue*>& arguments);
  PickleValue* array_scalar(const std::vector<PickleValue*>& arguments);
  PickleValue* array_dtype(const std::vector<PickleValue*>& arguments);
  void build_array(PickleValue* object, PickleValue* state);

  PickleArena& arena_;
  const PickleErrors& errors_;
  StorageSource storages_;
  std::map<std::string, at::Storage> opened_;
};

/// Interprets the pickle of a torch file. `file` is named in messages. Throws as `read_torch_file`
/// does. `used`: receives how many bytes the pickle took; without it, what follows the pickle is
/// passed over.
StateTree read_pickle(std::string_view pickle, const std::string& file, StorageSource storages,
                      size_t* used = nullptr);

}  // namespace gradus
