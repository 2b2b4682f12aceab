// S: rows of this rank's shard, H: hidden, D: 2 · hidden.
#include "layers/mtp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <utility>

#include "layers/block.h"
#include "model/roles.h"
#include "ops/linear.h"

namespace sluice::layers {
namespace {

LayerContext with_loss_of_mtp(LayerContext context) {
  context.loss = weighted_cross_entropy(context.mtp_loss_weight);
  context.distillation.reset();
  return context;
}

}  // namespace

struct Mtp::Input {
  ops::RmsNorm last, row, token;  // norms: of the model's last row, of that once more, of the embedding
  at::Tensor embedded_SH, pair_SD, z_SH;
};

Mtp::Mtp(const Site& site)
    : context_(site.context),
      loss_context_(with_loss_of_mtp(site.context)),
      program_(site.table.program),
      head_(*program_.kind_at(site.position).head()),
      weights_(bound(site.own_weights())),
      gradients_(bound(site.own_gradients())),
      block_(make_block(site, head_.mtp->layer)) {}

Mtp::Parameters Mtp::bound(const OperationShards& shards) const {
  Parameters all{.embedding = {.kind = program_.kinds().front()->embedding(),
                               .table_VH = shards.tensor(model::roles::kEmbedding),
                               .vocabulary = shards.rows(model::roles::kEmbedding)},
                 .head = head_parameters(shards),
                 .final_norm = norm_vectors(shards, head_.norm),
                 .token_norm = norm_vectors(shards, head_.mtp->token_norm),
                 .row_norm = norm_vectors(shards, head_.mtp->row_norm),
                 .projection_HD = shards.tensor(model::roles::kMtpProjection)};
  const NormVectors norm = norm_vectors(shards, head_.mtp->norm);
  all.head.final_norm_H = norm.weight_H;
  all.head.final_norm_bias_H = norm.bias_H;
  return all;
}

Mtp::Input Mtp::input_of(const Flow& flow) const {
  Input input;
  input.embedded_SH = embedding_forward(context_, weights_.embedding, flow.mtp.id_T, flow.layout.position_T);
  input.token = norm_rows(head_.mtp->token_norm, input.embedded_SH, weights_.token_norm);
  input.last = norm_rows(head_.norm, flow.activation_SH, weights_.final_norm);
  input.row = norm_rows(head_.mtp->row_norm, input.last.y_TH, weights_.row_norm);
  input.pair_SD = at::cat({input.token.y_TH, input.row.y_TH}, 1);
  input.token.y_TH.reset();
  input.row.y_TH.reset();
  input.z_SH = ops::times_transposed(input.pair_SD, weights_.projection_HD);
  return input;
}

// dpair = dz · projection; each half goes back through its norms.
void Mtp::input_backward(const Flow& flow, const Input& input, const at::Tensor& dz_SH,
                         at::Tensor& dx_SH) const {
  const model::MtpLayer& own = *head_.mtp;
  const int64_t hidden = dz_SH.size(1);
  accumulate_gradient(gradients_.projection_HD, dz_SH, input.pair_SD);
  const at::Tensor dpair_SD = ops::times(dz_SH, weights_.projection_HD);
  const at::Tensor dtoken_SH = dpair_SD.narrow(1, 0, hidden).contiguous();
  embedding_backward(context_, flow.mtp.id_T, flow.layout.position_T,
                     norm_rows_backward(own.token_norm, dtoken_SH, input.embedded_SH, weights_.token_norm,
                                        input.token.inverse_rms_T, /*residual_TH=*/{}, gradients_.token_norm)
                         .dx_TH,
                     gradients_.embedding);
  const at::Tensor drow_SH = dpair_SD.narrow(1, hidden, hidden).contiguous();
  const at::Tensor dlast_SH =
      norm_rows_backward(own.row_norm, drow_SH, input.last.y_TH, weights_.row_norm, input.row.inverse_rms_T,
                         /*residual_TH=*/{}, gradients_.row_norm)
          .dx_TH;
  dx_SH = norm_rows_backward(head_.norm, dlast_SH, flow.activation_SH, weights_.final_norm,
                             input.last.inverse_rms_T, /*residual_TH=*/dx_SH, gradients_.final_norm)
              .dx_TH;
}

void Mtp::forward_backward(const Flow& flow, HeadResult& result) const {
  Input input = input_of(flow);
  Flow own;
  own.layout = flow.layout;
  own.activation_SH = std::exchange(input.z_SH, {});
  StatePtr saved = block_->forward(own, Purpose::kTrain);
  HeadResult found = head_forward_backward(loss_context_, weights_.head, own.activation_SH, flow.mtp.targets,
                                           gradients_.head);
  own.activation_SH.reset();
  own.gradient_SH = std::move(found.dx_SH);
  block_->backward(own, std::move(saved));
  input_backward(flow, input, own.gradient_SH, result.dx_SH);
  const auto targets = static_cast<double>(flow.mtp.targets.place_R.numel());
  result.sums = at::cat({result.sums, found.sums, at::full({1}, targets, found.sums.options())});
}

void Mtp::help(const DispatchedRows& rows) const {
  block_->help(rows, Direction::kForward);
  block_->help(rows, Direction::kBackward);
}

}  // namespace sluice::layers
