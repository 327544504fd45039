"""Runs ONNX exports in the client's own process: texts in, texts out."""

from keras_attn_serving.onnx.onnx_model import OnnxModel as OnnxModel
