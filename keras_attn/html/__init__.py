"""Pages that show attention in a browser, each in one file."""

from keras_attn.html.base import attention_html as attention_html
