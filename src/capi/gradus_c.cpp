#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/gradus_c.h>

#include <cstring>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "capi/c_trainer.h"

namespace gradus {
namespace {

constexpr int32_t kMostDims = 8;

/// A wrong argument of the caller; the text says which.
struct BadArgument {
  std::string text;
};

/// A handle that leads nowhere.
struct BadHandle {
  gradus_trainer handle;
};

/// What a handle stands for. Calls with one handle wait for each other.
struct Opened {
  std::mutex mutex;
  std::unique_ptr<CTrainer> trainer;  ///< null once it is closed
};

/// The handles that are open. Only a table of them can tell a closed one from an open one.
class HandleTable {
 public:
  gradus_trainer add(std::unique_ptr<CTrainer> trainer) {
    auto opened = std::make_shared<Opened>();
    opened->trainer = std::move(trainer);
    const std::unique_lock lock(mutex_);
    opened_.emplace(++last_, std::move(opened));
    return last_;
  }
  std::shared_ptr<Opened> find(gradus_trainer handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = opened_.find(handle);
    if (found == opened_.end()) throw BadHandle{handle};
    return found->second;
  }
  std::shared_ptr<Opened> take(gradus_trainer handle) {
    const std::unique_lock lock(mutex_);
    const auto found = opened_.find(handle);
    if (found == opened_.end()) throw BadHandle{handle};
    auto opened = std::move(found->second);
    opened_.erase(found);
    return opened;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<gradus_trainer, std::shared_ptr<Opened>> opened_;
  gradus_trainer last_ = 0;
};

HandleTable& handles() {
  static auto* table = new HandleTable;  // never destroyed: threads may call until the end
  return *table;
}

gradus_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return GRADUS_USAGE;
    case ErrorKind::data: return GRADUS_DATA;
    case ErrorKind::model: return GRADUS_MODEL;
    case ErrorKind::checkpoint: return GRADUS_CHECKPOINT;
    case ErrorKind::io: return GRADUS_IO;
    case ErrorKind::training: return GRADUS_TRAINING;
    case ErrorKind::internal: return GRADUS_INTERNAL;
  }
  return GRADUS_INTERNAL;
}

/// Copies a text into a field of fixed size, cut at the border of a character.
template <size_t size>
void put_text(char (&field)[size], std::string_view text) {
  size_t length = std::min(text.size(), size - 1);
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  std::memcpy(field, text.data(), length);
  field[length] = 0;
}

gradus_status tell(gradus_error* error, gradus_status status, std::string_view id,
                   std::string_view text) {
  if (error != nullptr) {
    put_text(error->id, id);
    put_text(error->text, text);
  }
  return status;
}

/// Runs `work`; no exception passes the border.
template <class Work>
gradus_status guarded(gradus_error* error, Work&& work) noexcept {
  try {
    work();
    return GRADUS_OK;
  } catch (const BadHandle& bad) {
    return tell(error, GRADUS_BAD_HANDLE, "",
                "the handle " + std::to_string(bad.handle) + " is not open");
  } catch (const BadArgument& bad) {
    return tell(error, GRADUS_BAD_ARGUMENT, "", bad.text);
  } catch (const Error& found) {
    return tell(error, status_of(found.kind()), found.id(), found.what());
  } catch (const c10::Error& found) {
    return tell(error, GRADUS_INTERNAL, "", found.what_without_backtrace());
  } catch (const std::exception& found) {
    return tell(error, GRADUS_INTERNAL, "", found.what());
  } catch (...) {
    return tell(error, GRADUS_INTERNAL, "", "an unknown exception");
  }
}

/// Runs `work(trainer)` for an open handle.
template <class Work>
gradus_status with_trainer(gradus_trainer handle, gradus_error* error, Work&& work) noexcept {
  return guarded(error, [&] {
    const auto opened = handles().find(handle);
    const std::lock_guard lock(opened->mutex);
    if (!opened->trainer) throw BadHandle{handle};
    work(*opened->trainer);
  });
}

void need(const void* pointer, const char* name) {
  if (pointer == nullptr) throw BadArgument{fmt::format("{} is NULL", name)};
}

torch::Dtype dtype_of(int32_t dtype, const char* name) {
  switch (dtype) {
    case GRADUS_FLOAT32: return torch::kFloat;
    case GRADUS_FLOAT64: return torch::kDouble;
    case GRADUS_INT64: return torch::kLong;
    case GRADUS_INT32: return torch::kInt;
    case GRADUS_UINT8: return torch::kByte;
    case GRADUS_BOOL: return torch::kBool;
  }
  throw BadArgument{fmt::format("{} has the unknown dtype {}", name, dtype)};
}

/// A view of the caller's numbers, for the time of the call.
torch::Tensor view_of(const gradus_tensor& given) {
  need(given.name, "the name of a tensor");
  if (given.dims < 0 || given.dims > kMostDims)
    throw BadArgument{
        fmt::format("{} has {} dimensions, expected 0 to {}", given.name, given.dims, kMostDims)};
  if (given.dims > 0) need(given.sizes, "the sizes of a tensor");
  const auto dtype = dtype_of(given.dtype, given.name);
  const at::IntArrayRef sizes(given.sizes, size_t(given.dims));
  int64_t elements = 1;
  for (const auto size : sizes) {
    if (size < 0 || (size > 0 && elements > std::numeric_limits<int64_t>::max() / 16 / size))
      throw BadArgument{fmt::format("{} has the size {}", given.name, size)};
    elements *= size;
  }
  if (elements > 0 && given.data == nullptr)
    throw BadArgument{fmt::format("the data of {} is NULL", given.name)};
  if (elements == 0) return torch::empty(sizes, dtype);
  return at::from_blob(const_cast<void*>(given.data), sizes, torch::dtype(dtype));
}

Batch batch_of(const gradus_tensor* tensors, size_t count) {
  need(tensors, "batch");
  if (count == 0 || count > 1000)
    throw BadArgument{fmt::format("the batch has {} tensors, expected 1 to 1000", count)};
  Batch batch;
  for (size_t i = 0; i < count; ++i) {
    const auto tensor = view_of(tensors[i]);
    batch.set(tensors[i].name, tensor);
  }
  return batch;
}

}  // namespace
}  // namespace gradus

int gradus_c_version(void) { return GRADUS_C_VERSION; }

gradus_status gradus_open(const char* folder, const char* task, const char* options,
                          gradus_trainer* trainer, gradus_error* error) {
  return gradus::guarded(error, [&] {
    gradus::need(folder, "folder");
    gradus::need(trainer, "trainer");
    *trainer = 0;
    const auto values =
        options == nullptr ? nlohmann::json::object() : gradus::parse_json(options, "options");
    if (!values.is_object()) throw gradus::BadArgument{"options must be a JSON object"};
    *trainer = gradus::handles().add(
        std::make_unique<gradus::CTrainer>(folder, task == nullptr ? "" : task, values));
  });
}

gradus_status gradus_close(gradus_trainer trainer, gradus_error* error) {
  return gradus::guarded(error, [&] {
    const auto opened = gradus::handles().take(trainer);
    const std::lock_guard lock(opened->mutex);  // a call on another thread ends first
    opened->trainer.reset();
  });
}

gradus_status gradus_step(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                          double* loss, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    const auto value = opened.step(gradus::batch_of(batch, count));
    if (loss != nullptr) *loss = value;
  });
}

gradus_status gradus_evaluate(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                              double* loss, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    gradus::need(loss, "loss");
    *loss = opened.evaluate(gradus::batch_of(batch, count)).loss().item<double>();
  });
}

gradus_status gradus_predict(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                             const char* output, float* values, size_t capacity, int64_t* sizes,
                             int32_t* dims, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    gradus::need(output, "output");
    gradus::need(sizes, "sizes");
    gradus::need(dims, "dims");
    const auto outputs = opened.evaluate(gradus::batch_of(batch, count));
    const auto found = outputs[output].to(torch::kFloat).contiguous();
    if (found.dim() > gradus::kMostDims)
      throw gradus::BadArgument{fmt::format("{} has {} dimensions", output, found.dim())};
    *dims = int32_t(found.dim());
    std::copy(found.sizes().begin(), found.sizes().end(), sizes);
    if (size_t(found.numel()) > capacity)
      throw gradus::BadArgument{
          fmt::format("{} has {} numbers, there is room for {}", output, found.numel(), capacity)};
    if (found.numel() == 0) return;
    gradus::need(values, "values");
    std::memcpy(values, found.data_ptr<float>(), sizeof(float) * size_t(found.numel()));
  });
}

gradus_status gradus_steps(gradus_trainer trainer, int64_t* steps, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    gradus::need(steps, "steps");
    *steps = opened.steps();
  });
}

gradus_status gradus_save(gradus_trainer trainer, const char* folder, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    gradus::need(folder, "folder");
    opened.save(folder);
  });
}

gradus_status gradus_load(gradus_trainer trainer, const char* folder, gradus_error* error) {
  return gradus::with_trainer(trainer, error, [&](gradus::CTrainer& opened) {
    gradus::need(folder, "folder");
    opened.load(folder);
  });
}
