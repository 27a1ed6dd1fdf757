// The makers of all layers, one per source file. The fields that every layer has (name, `trainable`, `dtype`)
// are read before a maker is called.
#pragma once

#include <memory>
#include <string>

#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

std::unique_ptr<Layer> MakeActivation(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeActivityRegularization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAdd(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAdditiveAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAlphaDropout(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAverage(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAveragePooling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAveragePooling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeAveragePooling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeBatchNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeBidirectional(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCachedMultiHeadAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCastToInteger(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCategoryEncoding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConcatenate(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConv1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConv1DTranspose(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConv2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConv2DTranspose(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConv3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeConvLstm2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCropping1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCropping2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCropping3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCumulativeSum(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeCustomScaleLayer(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDense(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDepthwiseConv1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDepthwiseConv2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDiscretization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDot(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDotInteraction(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeDropout(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeEinsumDense(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeElementwiseFunction(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeElu(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeEmbedReduce(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeEmbedding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeFeatureCross(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeFlatten(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGaussianDropout(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGaussianNoise(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalAveragePooling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalAveragePooling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalAveragePooling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalMaxPooling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalMaxPooling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalMaxPooling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalSumPooling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalSumPooling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGlobalSumPooling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGroupNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGroupQueryAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeGru(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeHashing(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeIdentity(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeIntegerLookup(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLayerNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLayerScale(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLeakyRelu(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLlamaAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLlamaLayerNorm(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeLstm(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMasking(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMathFunction(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMaxPooling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMaxPooling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMaxPooling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMaximum(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMinimum(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMultiHeadAttention(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeMultiply(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakePRelu(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakePermute(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakePositionEmbedding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRandomContrast(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRandomFlip(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRandomRotation(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRandomTranslation(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRandomZoom(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRelu(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRepeatVector(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRescaling(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeReshape(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeReverseEmbedding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeReversibleEmbedding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRmsNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeRotaryEmbedding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSampling(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSelectStep(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSeparableConv1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSeparableConv2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSimpleRnn(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSinePositionEncoding(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSoftmax(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSpatialDropout1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSpatialDropout2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSpatialDropout3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeStochasticDepth(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeStringLookup(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeSubtract(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeTimeDistributed(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeTextVectorization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeUnitNormalization(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeUpSampling1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeUpSampling2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeUpSampling3D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeZeroPadding1D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeZeroPadding2D(std::string name, ConfigReader& config);
std::unique_ptr<Layer> MakeZeroPadding3D(std::string name, ConfigReader& config);

}  // namespace cairn::nn
