#include "recipe/common_names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace some {
namespace {

struct CommonName {
  std::string_view name, setting;
};

constexpr std::array names = {
    CommonName{"learning_rate", "train.lr"},
    CommonName{"max_lr", "train.lr"},
    CommonName{"lr", "train.lr"},
    CommonName{"batch_size", "train.batch"},
    CommonName{"micro_batch_size", "train.batch"},
    CommonName{"per_device_train_batch_size", "train.batch"},
    CommonName{"gradient_accumulation_steps", "train.accumulate"},
    CommonName{"grad_accum", "train.accumulate"},
    CommonName{"grad_clip", "train.clip"},
    CommonName{"max_grad_norm", "train.clip"},
    CommonName{"gradient_clipping", "train.clip"},
    CommonName{"max_iters", "train.max_steps"},
    CommonName{"steps", "train.max_steps"},
    CommonName{"iters", "train.max_steps"},
    CommonName{"iterations", "train.max_steps"},
    CommonName{"num_steps", "train.max_steps"},
    CommonName{"total_steps", "train.max_steps"},
    CommonName{"num_epochs", "train.epochs"},
    CommonName{"num_train_epochs", "train.epochs"},
    CommonName{"warmup", "train.warmup_steps"},
    CommonName{"warmup_iters", "train.warmup_steps"},
    CommonName{"lr_scheduler_type", "train.schedule"},
    CommonName{"lr_schedule", "train.schedule"},
    CommonName{"scheduler", "train.schedule"},
    CommonName{"decay_lr", "train.schedule"},
    CommonName{"adam_beta1", "train.betas"},
    CommonName{"adam_beta2", "train.betas"},
    CommonName{"beta1", "train.betas"},
    CommonName{"beta2", "train.betas"},
    CommonName{"adam_epsilon", "train.eps"},
    CommonName{"eval_interval", "train.eval_every"},
    CommonName{"eval_steps", "train.eval_every"},
    CommonName{"log_interval", "train.measure_every"},
    CommonName{"logging_steps", "train.measure_every"},
    CommonName{"save_steps", "train.checkpoint_every"},
    CommonName{"save_total_limit", "train.keep_checkpoints"},
    CommonName{"early_stopping", "train.patience"},
    CommonName{"early_stopping_patience", "train.patience"},
    CommonName{"dtype", "train.precision"},
    CommonName{"torch_dtype", "train.precision"},
    CommonName{"bf16", "train.precision"},
    CommonName{"fp16", "train.precision"},
    CommonName{"mixed_precision", "train.precision"},
    CommonName{"num_threads", "train.threads"},
    CommonName{"expert_parallel_size", "train.expert_ranks"},
    CommonName{"random_seed", "seed"},
    CommonName{"n_layer", "model.layers"},
    CommonName{"n_layers", "model.layers"},
    CommonName{"num_layers", "model.layers"},
    CommonName{"num_hidden_layers", "model.layers"},
    CommonName{"n_head", "model.heads"},
    CommonName{"n_heads", "model.heads"},
    CommonName{"num_heads", "model.heads"},
    CommonName{"num_attention_heads", "model.heads"},
    CommonName{"n_embd", "model.d_model"},
    CommonName{"hidden_size", "model.d_model"},
    CommonName{"hidden_dim", "model.d_model"},
    CommonName{"block_size", "model.seq_len"},
    CommonName{"context_length", "model.seq_len"},
    CommonName{"max_seq_len", "model.seq_len"},
    CommonName{"max_length", "model.seq_len"},
    CommonName{"max_position_embeddings", "model.seq_len"},
    CommonName{"n_experts", "some.experts"},
    CommonName{"num_experts", "some.experts"},
    CommonName{"num_local_experts", "some.experts"},
    CommonName{"num_experts_per_tok", "some.top_k"},
    CommonName{"intermediate_size", "some.d_ffn"},
    CommonName{"ffn_dim", "some.d_ffn"},
    CommonName{"mlp_ratio", "model.dense_mult"},
    CommonName{"resid_dropout", "model.dropout"},
    CommonName{"resid_pdrop", "model.dropout"},
    CommonName{"embd_pdrop", "model.dropout"},
    CommonName{"hidden_dropout", "model.dropout"},
    CommonName{"router_aux_loss_coef", "some.balance_loss"},
    CommonName{"aux_loss_coef", "some.balance_loss"},
    CommonName{"load_balancing", "some.balance_loss"},
    CommonName{"moe_top_k", "some.top_k"},
    CommonName{"positional", "model.position"},
    CommonName{"pos_embedding", "model.position"},
    CommonName{"lora_r", "some.lora_rank"},
    CommonName{"aux_loss", "some.balance_loss"},
    CommonName{"vocab_size", "data.vocab"},
    CommonName{"dataset", "data.train"},
    CommonName{"train_data", "data.train"},
    CommonName{"val_data", "data.valid"},
    CommonName{"max_train_samples", "data.train_documents"},
    CommonName{"max_eval_samples", "data.valid_documents"},
    CommonName{"val_split", "data.valid_share"},
};

// "--Batch-Size" or "train.batch_size" -> "batch_size".
std::string plain_name(std::string_view name) {
  std::string plain(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  plain.erase(0, plain.rfind('.') + 1);
  std::transform(plain.begin(), plain.end(), plain.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return plain;
}

// Settings of other programs that do not exist here, with the replacement to suggest.
struct Advice {
  std::string_view names, advice;  // names separated by blanks
};

constexpr std::array advices = {
    Advice{"attn_dropout attention_dropout attn_pdrop",
           "dropout of attention weights is not supported; model.dropout drops the embedding and the outputs of the "
           "blocks"},
    Advice{"optimizer optim adam muon sgd lion adafactor",
           "the optimizer is always AdamW; its settings are train.lr, train.betas, train.eps and train.weight_decay"},
    Advice{
        "out_dir output_dir run_dir save_dir log_dir logging_dir checkpoint_dir run_name experiment_name",
        "not a setting of a recipe; pass --out FOLDER to 'some train'. A run keeps checkpoints and logs in its folder"},
    Advice{"init_from pretrained model_name_or_path load_from load_checkpoint finetune",
           "not a setting of a recipe; 'some train --from RUN' starts from the weights of a run, 'some import' reads "
           "models of other programs"},
    Advice{"resume resume_from resume_from_checkpoint",
           "not a setting of a recipe; 'some train --resume RUN' resumes a run"},
    Advice{"moe use_moe mixture_of_experts",
           "model.ffn = \"some\" is the mixture of experts; 'some settings \"some.*\"' lists its settings. The recipes "
           "moe-top2 and moe-top8 train standard experts"},
    Advice{"wandb wandb_log wandb_project report_to tensorboard logger",
           "nothing to set; every run writes metrics.jsonl and a TensorBoard file, and 'some board' shows runs in a "
           "browser"},
    Advice{"compile torch_compile use_flash_attention flash_attention gradient_checkpointing num_workers pin_memory",
           "nothing to set; training is compiled code"},
    Advice{"world_size nproc nproc_per_node num_gpus gpus ddp fsdp distributed",
           "not a setting of a recipe; 'mpirun -n 4 some train RECIPE' trains on four ranks, one GPU each"},
    Advice{"n_kv_heads num_key_value_heads gqa",
           "grouped-query attention is not supported; every head has its own keys"},
    Advice{"capacity_factor expert_capacity drop_tokens",
           "no token is dropped: experts have no capacity limit; some.balance_loss and some.balance_rate balance the "
           "load"},
    Advice{"max_new_tokens top_p repetition_penalty num_return_sequences",
           "not a setting of a recipe; 'some help generate' lists the options of generation"},
    Advice{"shuffle", "nothing to set; documents are shuffled in every epoch, by seed"},
};

}  // namespace

std::string setting_commonly_called(std::string_view name) {
  const std::string plain = plain_name(name);
  for (const CommonName& one : names) {
    if (one.name == plain) return std::string(one.setting);
  }
  return "";
}

std::string instead_of_unsupported(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain.empty()) return "";
  for (const Advice& one : advices) {
    for (std::size_t begin = 0; begin < one.names.size();) {
      const std::size_t end = std::min(one.names.find(' ', begin), one.names.size());
      if (one.names.substr(begin, end - begin) == plain) return std::string(one.advice);
      begin = end + 1;
    }
  }
  return "";
}

}  // namespace some
