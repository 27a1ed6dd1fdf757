# The backend's sources, for the library itself and for the tests that compile it for a CPU.
set(cairn_cuda_sources  # need only the CUDA runtime
  activation.cu affine.cu batch_norm.cu broadcast_merge.cu concatenate.cu context.cc conv2d.cc conv2d_transpose.cc
  convert.cu dense.cc device.cc direct_convolution.cu dropout.cu embedding.cu first_pooled_conv2d.cu global_pool.cu
  layer_norm.cu loss.cu loss_scaler.cu memory_pool.cc merge.cu pool2d.cu pooled_conv2d.cu regularizer.cu
  relu_bias.cu reorder.cu softmax.cu standardize.cu status.cc zero_pad2d.cu)
set(cairn_cuda_library_sources  # call cuDNN and cuBLAS
  cudnn_convolution.cc cudnn_descriptors.cc libraries.cc matmul.cc)
# These need NCCL's header, and load its library themselves.
set(cairn_cuda_nccl_sources nccl_group.cc nccl_library.cc nccl_peers.cc)
