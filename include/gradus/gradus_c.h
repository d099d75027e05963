/// gradus from C, and from every language that calls C: open a model, feed batches, step, evaluate,
/// save, load. The header is plain C99 and holds no C++.
///
/// Every function returns a status; what went wrong is written to the `gradus_error` that the
/// caller passes (it may be NULL). There is no other way to learn of an error and no state beside
/// the handles, so any number of models can live in one process.
///
/// Handles are numbers. A handle that was never given out, or was closed, is answered with
/// GRADUS_BAD_HANDLE; it never crashes. Numbers are not used again.
///
/// Threads: functions may be called from any thread. Calls with one handle wait for each other,
/// calls with different handles do not.
///
/// Tensors belong to the caller and are read during the call only. Models run on the CPU.
#ifndef GRADUS_GRADUS_C_H
#define GRADUS_GRADUS_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Grows by one with every change that a program compiled before would notice.
#define GRADUS_C_VERSION 1

/// A model that is being trained, with its optimizer and schedule. 0 is never a handle.
typedef uint64_t gradus_trainer;

/// The result of a call. The numbers stay as they are.
typedef enum gradus_status {
  GRADUS_OK = 0,            ///< done
  GRADUS_BAD_HANDLE = 1,    ///< there is no such handle, or it was closed
  GRADUS_BAD_ARGUMENT = 2,  ///< a pointer is NULL, or a value makes no sense
  GRADUS_USAGE = 3,         ///< an option is wrong
  GRADUS_DATA = 4,          ///< a batch cannot be used
  GRADUS_MODEL = 5,         ///< a model folder cannot be used
  GRADUS_CHECKPOINT = 6,    ///< a saved state cannot be used
  GRADUS_IO = 7,            ///< the system refused to read or write
  GRADUS_TRAINING = 8,      ///< a step failed
  GRADUS_INTERNAL = 9       ///< anything else, errors of LibTorch among them
} gradus_status;

/// What went wrong. Written only when a call does not return GRADUS_OK; texts end with a zero.
typedef struct gradus_error {
  char id[24];      ///< the id of docs/user/errors.md, "G-MODEL-7"; empty when there is none
  char text[1000];  ///< message and advice
} gradus_error;

/// The types of the numbers in a tensor.
typedef enum gradus_dtype {
  GRADUS_FLOAT32 = 0,
  GRADUS_FLOAT64 = 1,
  GRADUS_INT64 = 2,
  GRADUS_INT32 = 3,
  GRADUS_UINT8 = 4,
  GRADUS_BOOL = 5
} gradus_dtype;

/// An entry of a batch: numbers in row-major order.
typedef struct gradus_tensor {
  const char* name;      ///< as the model calls it: "input_ids", "labels"
  int32_t dtype;         ///< of the numbers: a gradus_dtype
  int32_t dims;          ///< 0 to 8
  const int64_t* sizes;  ///< one for each dimension; may be NULL when there is none
  const void* data;      ///< may be NULL when a size is 0
} gradus_tensor;

/// The version of this interface that the library has; compare it with GRADUS_C_VERSION.
int gradus_c_version(void);

/// Opens a model: an exported folder (tools/export_model.py), or a Hugging Face folder of an
/// architecture that gradus knows, for which `task` names the head ("causal-lm", "masked-lm",
/// "text-classification", "token-classification", "image-classification"). For exported folders
/// `task` may be NULL. `options` is a JSON object of training options ("learning_rate", "optim",
/// "max_steps", "lr_scheduler_type", "gradient_accumulation_steps", "max_grad_norm" and so on), or
/// NULL for their defaults. "max_steps" is needed by schedules that end. Options that a step here
/// would not follow ("bf16", "label_smoothing_factor", schedules that follow a metric) are refused.
gradus_status gradus_open(const char* folder, const char* task, const char* options,
                          gradus_trainer* trainer, gradus_error* error);

/// Closes a handle and frees what belongs to it.
gradus_status gradus_close(gradus_trainer trainer, gradus_error* error);

/// One micro-batch of training: forward and backward; with the last one of a window of
/// gradient_accumulation_steps also clipping, the optimizer's step and the schedule's. `loss` (may
/// be NULL) receives the loss of this batch.
gradus_status gradus_step(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                          double* loss, gradus_error* error);

/// The loss of a batch in evaluation mode, without training.
gradus_status gradus_evaluate(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                              double* loss, gradus_error* error);

/// An output of the model in evaluation mode ("logits"), as float32. `values` has room for
/// `capacity` numbers; `sizes` has room for 8 and receives the shape, `dims` how many there are.
/// When the room is not enough, sizes and dims are set and GRADUS_BAD_ARGUMENT is returned.
gradus_status gradus_predict(gradus_trainer trainer, const gradus_tensor* batch, size_t count,
                             const char* output, float* values, size_t capacity, int64_t* sizes,
                             int32_t* dims, gradus_error* error);

/// Optimizer steps so far.
gradus_status gradus_steps(gradus_trainer trainer, int64_t* steps, gradus_error* error);

/// Writes the model (model.safetensors, config.json, ...), which Python and gradus load, and the
/// state of optimizer and schedule in transformers' files. Not between the batches of a window.
gradus_status gradus_save(gradus_trainer trainer, const char* folder, gradus_error* error);

/// Takes over what gradus_save wrote for the same model: training goes on as if it had not
/// stopped. After an error everything is as it was.
gradus_status gradus_load(gradus_trainer trainer, const char* folder, gradus_error* error);

#ifdef __cplusplus
}
#endif

#endif
