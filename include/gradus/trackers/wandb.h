#pragma once

#include <gradus/trackers/tracker.h>

namespace gradus {

/// A tracker that writes an offline run of Weights & Biases, which `wandb sync` uploads.
///
/// The run is a folder `folder`/wandb/offline-run-DATE-ID with its record log and files. `folder`
/// is WANDB_DIR of the environment, else the working folder. Keys, config, summary and the number
/// of parameters are those of transformers' WandbCallback; use of processor, memory and disk is
/// sampled every 15 seconds. WANDB_PROJECT, WANDB_ENTITY, WANDB_NAME, WANDB_RUN_ID,
/// WANDB_RUN_GROUP, WANDB_NOTES and WANDB_TAGS hold. Models are not uploaded (WANDB_LOG_MODEL).
std::shared_ptr<Tracker> wandb_tracker(std::filesystem::path folder = {});

}  // namespace gradus
