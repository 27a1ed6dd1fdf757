# The backend's sources, for the library itself and for the tests that compile it for a CPU.
set(cairn_cuda_sources  # need only the CUDA runtime
  attention/attention.cu device.cc elementwise/activation.cu elementwise/broadcast_merge.cu elementwise/comparison.cu
  elementwise/concatenate.cu elementwise/cumulative_sum.cu elementwise/dropout.cu elementwise/gaussian_sample.cu
  elementwise/id_counts.cu elementwise/in_batch_softmax.cu elementwise/loss.cu elementwise/loss_scaler.cu
  elementwise/masked_mean.cu elementwise/merge.cu elementwise/noise.cu elementwise/regularizer.cu
  elementwise/reorder.cu elementwise/rotary.cu elementwise/softmax.cu elementwise/step_mask.cu
  elementwise/transpose.cu linear/bag_pool.cu linear/conv2d.cc linear/conv2d_transpose.cc linear/convert.cu
  linear/dense.cc linear/depth_windows.cu linear/direct_convolution.cu linear/embedding.cu linear/embedding_mean.cu
  linear/first_pooled_conv2d.cu linear/pair_dots.cu linear/pooled_conv2d.cu linear/relu_bias.cu
  normalization/affine.cu normalization/batch_norm.cu normalization/layer_norm.cu normalization/standardize.cu
  normalization/unit_norm.cu pooling/global_pool.cu pooling/image_warp.cu pooling/pool2d.cu pooling/upsample2d.cu
  pooling/zero_pad2d.cu recurrent/recurrence.cu runtime/context.cc runtime/memory_pool.cc runtime/status.cc)
set(cairn_cuda_library_sources  # call cuDNN and cuBLAS
  linear/cudnn_convolution.cc linear/cudnn_descriptors.cc runtime/libraries.cc linear/matmul.cc)
# These need NCCL's header, and load its library themselves.
set(cairn_cuda_nccl_sources nccl/nccl_group.cc nccl/nccl_library.cc nccl/nccl_peers.cc)
