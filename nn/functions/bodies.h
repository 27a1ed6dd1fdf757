// How the functions of keras_functions.h are read, and which layers compute them. The file of a group of functions is
// named in its comment.
//
// Each Read...() reads the arguments from the function's config, where faults are kept, and returns what lists the
// layers of a call.
#pragma once

#include <string>

#include "nn/functions/keras_functions.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// In what a function differs from others that are read the same way.
struct FunctionOption {
  const char* layer = "";  // the class of the layer without its number of axes, or an activation
  const char* argument = "";
  bool negated = false;  // of -x, negated again; of a logical function: of its negation
};

// Element by element: elements.cc.
FunctionBody ReadAbsolute(const FunctionOption&, ConfigReader& config);
FunctionBody ReadActivationFunction(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadCelu(const FunctionOption&, ConfigReader& config);
FunctionBody ReadClip(const FunctionOption&, ConfigReader& config);
FunctionBody ReadGelu(const FunctionOption&, ConfigReader& config);
FunctionBody ReadHardTanh(const FunctionOption&, ConfigReader& config);
FunctionBody ReadLogSigmoid(const FunctionOption&, ConfigReader& config);
FunctionBody ReadMathFunction(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadMerge(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadNegative(const FunctionOption&, ConfigReader& config);
FunctionBody ReadOneHot(const FunctionOption&, ConfigReader& config);
FunctionBody ReadPower(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSquare(const FunctionOption&, ConfigReader& config);
FunctionBody ReadWithSlope(const FunctionOption& option, ConfigReader& config);

// Conditions and masks: conditions.cc.
FunctionBody ReadAllOrAny(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadCast(const FunctionOption&, ConfigReader& config);
FunctionBody ReadCountNonzero(const FunctionOption&, ConfigReader& config);
FunctionBody ReadCumsum(const FunctionOption&, ConfigReader& config);
FunctionBody ReadElementwise(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadFilled(const FunctionOption& option, ConfigReader&);
FunctionBody ReadIsNan(const FunctionOption&, ConfigReader&);
FunctionBody ReadLogicalNot(const FunctionOption&, ConfigReader&);
FunctionBody ReadRound(const FunctionOption&, ConfigReader& config);

// Shapes and axes: axes.cc.
FunctionBody ReadConcatenate(const FunctionOption&, ConfigReader& config);
FunctionBody ReadExpandDims(const FunctionOption&, ConfigReader& config);
FunctionBody ReadMatmul(const FunctionOption&, ConfigReader& config);
FunctionBody ReadMoveaxis(const FunctionOption&, ConfigReader& config);
FunctionBody ReadPad(const FunctionOption&, ConfigReader& config);
FunctionBody ReadPool(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadReduction(const FunctionOption& option, ConfigReader& config);
FunctionBody ReadRepeat(const FunctionOption&, ConfigReader& config);
FunctionBody ReadReshape(const FunctionOption&, ConfigReader& config);
FunctionBody ReadResize(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSoftmax(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSqueeze(const FunctionOption&, ConfigReader& config);
FunctionBody ReadStack(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSwapaxes(const FunctionOption&, ConfigReader& config);
FunctionBody ReadTranspose(const FunctionOption&, ConfigReader& config);

// Parts and repetitions: parts.cc.
FunctionBody ReadGetItem(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSlice(const FunctionOption&, ConfigReader& config);
FunctionBody ReadSplit(const FunctionOption&, ConfigReader& config);
FunctionBody ReadTile(const FunctionOption&, ConfigReader& config);
FunctionBody ReadUnstack(const FunctionOption&, ConfigReader& config);

// Reductions with functions of elements: statistics.cc.
FunctionBody ReadLayerNorm(const FunctionOption&, ConfigReader& config);
FunctionBody ReadLogSoftmax(const FunctionOption&, ConfigReader& config);
FunctionBody ReadLogSumExp(const FunctionOption&, ConfigReader& config);
FunctionBody ReadMoments(const FunctionOption&, ConfigReader& config);
FunctionBody ReadNormalize(const FunctionOption&, ConfigReader& config);
FunctionBody ReadRmsNorm(const FunctionOption&, ConfigReader& config);
FunctionBody ReadVariance(const FunctionOption& option, ConfigReader& config);

// With an array in place of one of two tensors, as TakeNumber() writes it: constants.cc. `layer` is that of
// two tensors.
FunctionBody MergeWithConstant(const std::string& layer, ConfigReader& config);

// einsum.cc
FunctionBody ReadEinsum(const FunctionOption&, ConfigReader& config);

}  // namespace cairn::nn
