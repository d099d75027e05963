#include "config/python_only.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/optim/factory.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace gradus::config {
namespace {

// Whether a GPU of NVIDIA is visible to this process; the device layer finds out what it can do.
bool gpu_visible() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr &&
      (std::string_view(visible).empty() || std::string_view(visible) == "-1"))
    return false;
  std::error_code ignored;
  for (int i = 0; i < 16; ++i)
    if (std::filesystem::exists("/dev/nvidia" + std::to_string(i), ignored)) return true;
  return false;
}

bool environment_says(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && (std::string_view(value) == "true" || std::string_view(value) == "1");
}

void refuse(bool asked, const char* message, const char* advice) {
  if (asked) throw Error("G-CONF-5", ErrorKind::usage, message, advice);
}

void warn(bool asked, const char* message) {
  if (asked) log_warning_once(message);
}

void refuse_what_cannot_be(const TrainingArguments& args) {
  const TrainingArguments defaults;
  const bool hub = args.push_to_hub || args.hub_token || args.hub_private_repo ||
                   args.hub_model_id || args.hub_strategy != defaults.hub_strategy ||
                   args.hub_always_push || args.hub_revision;
  refuse(hub, "push_to_hub and the hub_* options: gradus does not talk to the Hub",
         "Leave them out and upload the folder of the trained model with `hf upload`.");
  refuse(!args.deepspeed.is_null() || environment_says("ACCELERATE_USE_DEEPSPEED"),
         "deepspeed: gradus does not run DeepSpeed",
         "Leave it out; --zero_stage 1, 2 or 3 shards a model over processes.");
  refuse(!args.parallelism_config.is_null(),
         "parallelism_config: gradus does not do tensor or context parallelism",
         "Leave it out; several processes train with plain data parallelism.");
  refuse(args.ddp_backend && *args.ddp_backend != "nccl" && *args.ddp_backend != "gloo",
         "ddp_backend: gradus has nccl and gloo only",
         "Leave it out: nccl is used on GPUs, gloo on CPUs.");
  refuse(args.tf32 == true && !gpu_visible(), "tf32: there is no GPU that could use it",
         "Leave it out, or run where an Ampere or newer GPU is visible.");
}

void warn_about_what_does_nothing(const TrainingArguments& args) {
  const TrainingArguments defaults;
  warn(args.torch_compile, "torch_compile has no effect: gradus runs LibTorch's own kernels.");
  warn(args.use_liger_kernel,
       "use_liger_kernel has no effect: Liger kernels are a Python "
       "package; gradus has its own "
       "kernels.");
  warn(!args.liger_kernel_config.is_null(),
       "liger_kernel_config has no effect: Liger kernels are a Python package.");
  warn(args.optim_target_modules && !optimizer_takes_targets(args.optim),
       "optim_target_modules has no effect: only the GaLore and APOLLO optimizers use it.");
  warn(!args.fsdp_config.is_null() && !args.fsdp && args.zero_stage == 0,
       "fsdp_config has no effect without fsdp or zero_stage.");
  const bool trackio = args.trackio_space_id || args.trackio_bucket_id ||
                       !args.trackio_static_space_id.is_null() || args.project != defaults.project;
  warn(trackio,
       "project and the trackio_* options have no effect: gradus does not report to Trackio.");
  warn(args.eval_use_gather_object,
       "eval_use_gather_object has no effect: outputs are tensors here, not Python objects.");
  warn(args.dataloader_multiprocessing_context.has_value(),
       "dataloader_multiprocessing_context has no effect: workers of the data loader are threads.");
  warn(args.debug.contains("tpu_metrics_debug"),
       "debug: tpu_metrics_debug has no effect: gradus does not run on TPUs.");
  const bool kubeflow = std::getenv("KUBEFLOW_TRAINER_SERVER_URL") != nullptr &&
                        !environment_says("DISABLE_KUBEFLOW_INTEGRATION");
  warn(kubeflow, "KUBEFLOW_TRAINER_SERVER_URL is set, but gradus does not report to Kubeflow yet.");
}

}  // namespace

void answer_python_only(const TrainingArguments& args) {
  refuse_what_cannot_be(args);
  warn_about_what_does_nothing(args);
}

}  // namespace gradus::config
