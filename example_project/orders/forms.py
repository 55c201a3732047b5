"""What people are asked in the shop's workflows."""

from django import forms


class ReleaseForm(forms.Form):
    """Whether a large order may leave the house."""

    release = forms.BooleanField(required=False, label="Release this order")
    note = forms.CharField(required=False, max_length=200)
