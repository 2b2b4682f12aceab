// Ways into a part and back to the residual stream beside the same written out and differentiated by
// autograd.
#include "layers/residual.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

constexpr int64_t kStreamRows = 4, kStreamWidth = 6, kPartWidth = 8;

struct JoinCase {
  const char* name;
  bool behind = false, sum = false, bias = false;
  double scale = 1;
};
constexpr JoinCase kJoins[] = {
    {.name = "plain"},
    {.name = "scaled", .scale = 0.25},
    {.name = "bias", .bias = true},
    {.name = "scaled bias", .bias = true, .scale = 0.25},
    {.name = "norm behind", .behind = true},
    {.name = "norm and bias", .behind = true, .bias = true},
    {.name = "norm of the sum", .behind = true, .sum = true},
    {.name = "norm of the sum and bias", .behind = true, .sum = true, .bias = true}};

model::Norm stream_norm() { return {.kind = model::NormKind::kRms, .eps = 1e-3, .offset = 0, .weights = {}}; }

model::Part part_of(const JoinCase& of) {
  model::Part part{.before = {}, .behind = {}, .weights = {}, .mixer = model::Mlp{}};
  if (of.behind) part.behind = stream_norm();
  part.scale = of.scale;
  part.norms_sum = of.sum;
  return part;
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.square().mean(1, true) + 1e-3).sqrt() * weight;
}

struct Joined {
  at::Tensor x, a, w, bias, norm;
  Exit exit() const { return {.w_AH = {.w_AB = w, .adapters = {}}, .bias_H = bias, .norm = {norm, {}}}; }
};

Joined inputs_of(const JoinCase& of, int64_t rows) {
  Joined inputs{.x = waves({rows, kStreamWidth}, 1),
                .a = waves({rows, kPartWidth}, 2),
                .w = waves({kPartWidth, kStreamWidth}, 3),
                .bias = {},
                .norm = {}};
  if (of.bias) inputs.bias = waves({kStreamWidth}, 4);
  if (of.behind) inputs.norm = waves({kStreamWidth}, 5);
  return inputs;
}

at::Tensor written_join(const JoinCase& of, const Joined& in) {
  at::Tensor product = in.a.mm(in.w);
  if (in.bias.defined()) product = product + in.bias;
  if (!of.behind) return in.x + of.scale * product;
  return of.sum ? normed(in.x + product, in.norm) : in.x + normed(product, in.norm);
}

TEST(Residual, JoinsAsItsFormulaAndLeavesTheStreamAsItWas) {
  for (const JoinCase& of : kJoins) {
    SCOPED_TRACE(of.name);
    const Joined in = inputs_of(of, kStreamRows);
    const at::Tensor before = in.x.clone();
    at::Tensor product;
    expect_near(join({}, part_of(of), in.x, in.a, in.exit(), &product), written_join(of, in));
    expect_near(in.x, before, "the stream", 0);
    EXPECT_EQ(product.defined(), of.behind) << "only a norm behind the part needs its input again";
    if (of.behind && !of.sum) expect_near(joined_product({}, in.a, in.exit()), product, "recomputed", 0);
  }
}

TEST(Residual, JoinsPartialSumsOfTpRanks) {
  for (const JoinCase& of : kJoins) {
    SCOPED_TRACE(of.name);
    const Joined in = inputs_of(of, kStreamRows);
    std::vector<at::Tensor> shards(2);
    on_ranks(2, [&](int rank, comm::Communicator& members) {
      LayerContext context;
      context.parallel = {&members, 2, rank};
      Exit own = in.exit();
      own.w_AH.w_AB = in.w.narrow(0, rank * kPartWidth / 2, kPartWidth / 2);
      const at::Tensor a = in.a.narrow(1, rank * kPartWidth / 2, kPartWidth / 2);
      const at::Tensor x = in.x.narrow(0, rank * kStreamRows / 2, kStreamRows / 2);
      shards[static_cast<size_t>(rank)] = join(context, part_of(of), x, a, own);
    });
    expect_near(at::cat(shards), written_join(of, in));
  }
}

TEST(Residual, GradientsOfTheProductAndOfVectorsAreAdded) {
  for (const JoinCase& of : kJoins) {
    SCOPED_TRACE(of.name);
    Joined in = inputs_of(of, kStreamRows);
    const at::Tensor dy = waves({kStreamRows, kStreamWidth}, 6);
    std::vector<at::Tensor> wanted{in.a.requires_grad_(), in.x.requires_grad_()};
    if (of.bias) wanted.push_back(in.bias.requires_grad_());
    if (of.behind) wanted.push_back(in.norm.requires_grad_());
    const std::vector<at::Tensor> expected = gradients_of(written_join(of, in), dy, wanted);

    const at::NoGradGuard none;
    at::Tensor product;
    join({}, part_of(of), in.x, in.a, in.exit(), &product);
    Exit gradients;
    if (of.bias) gradients.bias_H = at::ones({kStreamWidth}, at::kDouble);
    if (of.behind) gradients.norm.weight_H = at::ones({kStreamWidth}, at::kDouble);
    const at::Tensor dproduct = join_backward(part_of(of), dy, in.exit(), product, gradients);
    expect_near(dproduct.mm(in.w.t()), expected[0], "of the part's rows");
    expect_near(of.sum ? dproduct : dy, expected[1], "of the stream");
    if (of.bias) expect_near(gradients.bias_H, expected[2] + 1, "of the bias");
    if (of.behind) expect_near(gradients.norm.weight_H, expected.back() + 1, "of the norm");
  }
}

TEST(Residual, EntersWithAndWithoutANorm) {
  for (const bool norms : {false, true}) {
    model::Part part = part_of({.name = "entered"});
    if (norms) part.before = stream_norm();
    const at::Tensor x = waves({kStreamRows, kStreamWidth}, 1).requires_grad_(),
                     weight = waves({kStreamWidth}, 2).requires_grad_(),
                     dinput = waves({kStreamRows, kStreamWidth}, 3),
                     dy = waves({kStreamRows, kStreamWidth}, 4);
    const at::Tensor y = norms ? normed(x, weight) : x * 1;
    const at::Tensor dx = gradients_of(y, dinput, {x})[0];
    const at::NoGradGuard none;
    const PartInput entered = enter(part, x, {weight, {}});
    expect_near(entered.y_SH, y);
    EXPECT_EQ(entered.inverse_rms_S.defined(), norms);
    const PartInputGradient back =
        enter_backward(part, dinput, x, {weight, {}}, entered.inverse_rms_S, dy, /*dnorm=*/{});
    expect_near(back.dx_SH, dx + dy, "through the part and along the stream");
    expect_near(back.y_SH, y, "recomputed");
  }
}

// A lane may have no rows of a micro-batch.
TEST(Residual, NoRowsAreJoinedToNoRows) {
  for (const JoinCase& of : kJoins) {
    SCOPED_TRACE(of.name);
    const Joined in = inputs_of(of, 0);
    at::Tensor product;
    const at::Tensor y = join({}, part_of(of), in.x, in.a, in.exit(), &product);
    EXPECT_EQ(y.sizes(), in.x.sizes());
    Exit gradients;
    if (of.bias) gradients.bias_H = at::ones({kStreamWidth}, at::kDouble);
    EXPECT_EQ(join_backward(part_of(of), y, in.exit(), product, gradients).sizes(), y.sizes());
    if (of.bias) expect_near(gradients.bias_H, at::ones({kStreamWidth}, at::kDouble), "nothing is added", 0);
  }
}

}  // namespace
}  // namespace sluice::layers
