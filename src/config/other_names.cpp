#include "config/other_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace sluice::config {

namespace {

// In alphabetical order.
constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.eps"},
    {"adam_epsilon", "optimizer.eps"},
    {"base_model", "model.hf"},
    {"batch_size", "data.tokens_per_step"},
    {"bf16", "train.dtype"},
    {"block_size", "data.context_length"},
    {"bnb_4bit_quant_type", "model.base"},
    {"clip_grad", "optimizer.clip"},
    {"cliprange_value", "rl.value_clip"},
    {"context_parallel_degree", "parallel.strategies"},
    {"context_parallel_size", "parallel.strategies"},
    {"critic_learning_rate", "rl.critic_lr"},
    {"cutoff_len", "data.context_length"},
    {"data_parallel_shard_degree", "parallel.strategies"},
    {"data_path", "data.train"},
    {"dataset", "data.train"},
    {"dataset_name", "data.train"},
    {"datasets", "data.train"},
    {"early_stopping_patience", "train.patience"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"fp16", "train.dtype"},
    {"global_batch_size", "data.tokens_per_step"},
    {"grad_clip", "optimizer.clip"},
    {"gradient_accumulation_steps", "data.tokens_per_step"},
    {"gradient_checkpointing", "memory.recompute"},
    {"gradient_clipping", "optimizer.clip"},
    {"lam", "rl.gae_lambda"},
    {"learning_rate", "optimizer.lr"},
    {"load_best_model_at_end", "checkpoint.keep_best"},
    {"load_in_4bit", "model.base"},
    {"load_in_8bit", "model.base"},
    {"local_batch_size", "data.tokens_per_step"},
    {"lora_alpha", "lora.alpha"},
    {"lora_r", "lora.rank"},
    {"lora_rank", "lora.rank"},
    {"lora_target_modules", "lora.targets"},
    {"lr_decay_style", "optimizer.decay"},
    {"lr_scheduler", "optimizer.decay"},
    {"lr_scheduler_type", "optimizer.decay"},
    {"lr_warmup_iters", "optimizer.warmup_steps"},
    {"max_epochs", "train.epochs"},
    {"max_grad_norm", "optimizer.clip"},
    {"max_length", "data.context_length"},
    {"max_response_length", "rl.max_completion_length"},
    {"max_seq_len", "data.context_length"},
    {"max_seq_length", "data.context_length"},
    {"max_steps", "train.steps"},
    {"micro_batch_size", "data.tokens_per_step"},
    {"mixed_precision", "train.dtype"},
    {"model_name", "model.hf"},
    {"model_name_or_path", "model.hf"},
    {"model_path", "model.hf"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"optim", "optimizer.name"},
    {"optimizer_type", "optimizer.name"},
    {"output_dir", "log.dir"},
    {"per_device_train_batch_size", "data.tokens_per_step"},
    {"pipeline_model_parallel_size", "parallel.strategies"},
    {"pipeline_parallel_degree", "parallel.strategies"},
    {"precision", "train.dtype"},
    {"recompute_granularity", "memory.recompute"},
    {"report_to", "log.tensorboard"},
    {"reward_funcs", "rl.reward"},
    {"reward_model_path", "rl.reward"},
    {"rollout_n", "rl.num_generations"},
    {"save", "log.dir"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"seq_len", "data.context_length"},
    {"seq_length", "data.context_length"},
    {"sequence_len", "data.context_length"},
    {"sequence_length", "data.context_length"},
    {"target_modules", "lora.targets"},
    {"teacher_model", "teacher.hf"},
    {"teacher_model_name_or_path", "teacher.hf"},
    {"tensor_model_parallel_size", "parallel.strategies"},
    {"tensor_parallel_degree", "parallel.strategies"},
    {"total_epochs", "train.epochs"},
    {"train_data_path", "data.train"},
    {"train_file", "data.train"},
    {"train_files", "data.train"},
    {"train_iters", "train.steps"},
    {"training_steps", "train.steps"},
    {"val_files", "data.validation"},
    {"value_model_path", "rl.critic"},
    {"use_dora", "lora.dora"},
    {"warmup", "optimizer.warmup_steps"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"warmup_ratio", "optimizer.warmup_steps"},
};

}  // namespace

std::string_view key_of_other_name(std::string_view name) {
  std::string plain(name);
  std::ranges::transform(plain, plain.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  const auto* const found =
      std::ranges::find(kKeys, plain, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kKeys) ? std::string_view() : found->second;
}

}  // namespace sluice::config
