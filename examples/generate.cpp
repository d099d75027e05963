// Teaches a tiny language model to count and lets it go on: greedy, sampled, with beams, and token
// by token as it writes.
#include <gradus/gradus.h>

#include <iostream>

int main() try {
  // A Llama of one block over the digits 0 to 9; from a folder it would be
  // AutoModelForCausalLM::from_pretrained("folder").
  auto model = gradus::AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                                          {"vocab_size", 10},
                                                          {"hidden_size", 32},
                                                          {"intermediate_size", 64},
                                                          {"num_hidden_layers", 1},
                                                          {"num_attention_heads", 4},
                                                          {"max_position_embeddings", 32},
                                                          {"bos_token_id", nullptr},
                                                          {"eos_token_id", nullptr}});
  const auto rows = (torch::arange(10).unsqueeze(1) + torch::arange(12).unsqueeze(0))
                        .remainder(10);  // 3 4 5 6 7 8 9 0 1 …
  gradus::Trainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/count",
                .per_device_train_batch_size = 10,
                .max_steps = 60,
                .learning_rate = 0.01,
                .save_strategy = "no"},
       .train_dataset = gradus::from_tensors({{"input_ids", rows}, {"labels", rows}})});
  trainer.train();

  const gradus::Batch prompt = {{"input_ids", torch::tensor({{6, 7}})}};
  std::cout << "greedy   " << model->generate(prompt, {.max_new_tokens = 6}) << '\n';
  std::cout << "sampled  "
            << model->generate(prompt, {.max_new_tokens = 6,
                                        .do_sample = true,
                                        .temperature = 0.8,
                                        .top_p = 0.9,
                                        .num_return_sequences = 2})
            << '\n';
  std::cout << "beams    "
            << model->generate(prompt,
                               {.max_new_tokens = 6, .num_beams = 3, .num_return_sequences = 2})
            << '\n';

  // As it is produced: TextStreamer makes text of ids; with a tokenizer, `decode` is
  // tokenizer->decode.
  const auto decode = [](const std::vector<int64_t>& ids) {
    std::string text;
    for (const auto id : ids) text += std::to_string(id) + ' ';
    return text;
  };
  std::string written;
  gradus::TextStreamer streamer(
      decode, [&](std::string_view piece) { std::cout << piece << std::flush, written += piece; });
  gradus::GenerationOptions options{.max_new_tokens = 6};
  options.streamer = [&](std::span<const int64_t> ids) { streamer.put(ids); };
  options.stopping_criteria = {[](std::span<const int64_t> row) {
    return row.back() == 2;
  }};  // one of its own: stop at the 2
  std::cout << "streamed ";
  model->generate(prompt, options);
  streamer.end();
  std::cout << '\n';
  return written == "8 9 0 1 2 " ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
